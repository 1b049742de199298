/** Tasks one after the other, one of them at a time beside whoever starts them. */
export class Behind {
  #last: Promise<void> = Promise.resolve();

  /** Starts a task once the one before has ended. Rejects where that has failed. */
  async start(task: () => Promise<void>): Promise<void> {
    await this.#last;
    this.#last = task();
    this.#last.catch(() => {}); // the next one, or the end, is told
  }

  end(): Promise<void> {
    return this.#last;
  }
}

export const root: string;
export const pages: string[];
export function read(page: string): string;
export function blocksOf(page: string): { kind: string; code: string; line: number }[];
export function examplesOf(
  page: string,
): { code: string; line: number; needsGpu: boolean; printed: string[]; output: string | undefined }[];
export function commandsOf(page: string): { line: number; words: string[] }[];
export function runExamples(page: string, node?: string): Promise<void>;
export const programs: string[];
export function runProgram(path: string, node?: string): Promise<string>;

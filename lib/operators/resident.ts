/** What joins and sorts of loaded tables where they lie have in common. */
import { type Input, type InputColumn, infoOf } from '../columns/input.js';
import type { ResultColumn } from '../columns/layout.js';
import type { Origin } from '../columns/result.js';
import { typeInfo } from '../columns/types.js';
import { noValues } from '../columns/values.js';
import type { ResidentHandle } from '../native.js';
import type { Resources } from '../plan/plan.js';
import type { Call } from './call.js';
import { type Contents, LoadedTable, type Resident } from './load.js';

/** Has the call read a table on the devices, where an evicted one comes back to if it fits: false where it does not. */
export async function useThere(call: Call, contents: Contents): Promise<boolean> {
  if (!contents.resident) await call.tables.load(call, contents, false);
  if (!contents.resident) return false;
  call.tables.use(contents);
  return true;
}

/**
 * Puts columns of an input in host memory on the devices for the running call, or until they are freed; null where they and `room`
 * times their size beside them do not fit.
 */
export async function lend(call: Call, input: Input, columns: readonly number[], room: number): Promise<Resident | null> {
  const { native, job } = call;
  const { devices } = call.resources;
  const relation = await call.relation(`check ${input.argument} buffers`, input, columns);
  const [positions, ordinals] = [[...columns.keys()], devices.map(({ ordinal }) => ordinal)];
  const bytes = native.residentBytes(relation, positions, ordinals);
  const fits = devices.every(({ limitBytes }) => limitBytes >= (1 + room) * bytes);
  const load = () => native.loadTable(job, relation, positions, ordinals);
  const handle = fits ? call.keep(await call.step(`move ${input.argument} to the devices`, load)) : null;
  call.free(relation);
  return handle && { handle, position: new Map(columns.map((column, position) => [column, position])) };
}

/** The position on the devices of a column that tuples can carry; or null. */
export function carriedThere(input: Input, column: number, { handle, position }: Resident): number | null {
  const { kind, width } = infoOf(input, column);
  const at = position.get(column);
  return at !== undefined && kind === 'fixed' && (width === 4 || width === 8) && !handle.nullable[at] ? at : null;
}

/**
 * What `plan` makes for the devices' memory, once tables that the call does not read have left as much room as it takes; or why it
 * makes nothing.
 */
export async function planThere<P extends object>(
  call: Call,
  plan: (resources: Resources) => P | string,
): Promise<{ plan: P; resources: Resources } | string> {
  for (;;) {
    const { resources } = call;
    const made = plan(resources);
    if (typeof made !== 'string') return { plan: made, resources };
    if (!(await call.tables.makeRoom(call))) return made;
  }
}

/** A result on the devices as a loaded table. */
export function stayingTable(
  call: Call,
  columns: readonly ResultColumn[],
  { library, metadata }: Origin,
  handle: ResidentHandle,
): LoadedTable {
  const contents: Contents = {
    rows: handle.rows,
    columns: columns.map(({ name, type, nullable, metadata, of }, index): InputColumn => {
      const mayBeNull = handle.nullable[index]!;
      const info = typeInfo(type);
      const values = { ...noValues(null), dictionary: of.dictionary, withoutNulls: !mayBeNull };
      return { name, info, foreignType: type, nullable: nullable || mayBeNull, metadata, ...values };
    }),
    metadata,
    library,
    host: null,
    resident: null,
    disposed: false,
  };
  call.handOver(handle);
  call.tables.add(contents, { handle, position: new Map(columns.map((_, index) => [index, index])) });
  return new LoadedTable(call.core, contents);
}

/** What a join needs of each side: its keys, and what its rows are made of. */
import type { Input } from '../columns/input.js';
import { type JoinLayout, joinLayout } from '../columns/layout.js';
import type { Side } from '../native.js';
import type { JoinSettings } from '../options.js';

type Naming = Pick<JoinSettings, 'how' | 'keys' | 'suffix' | 'coalesce' | 'select'>;

/** The columns of each side that a join by columns needs, in their order. Where others would have other names without the rest: all. */
export function neededColumns(inputs: Record<Side, Input>, settings: Naming): Record<Side, number[]> {
  const all = { left: [...inputs.left.columns.keys()], right: [...inputs.right.columns.keys()] };
  const whole = joinLayout(inputs.left, inputs.right, settings);
  const kept = (side: Side): number[] => {
    const keys = whole.keys!.map((key) => key[side]);
    const columns = whole.columns.filter(({ source }) => source === side).map(({ column }) => column);
    return [...new Set([...keys, ...columns])].sort((a, b) => a - b);
  };
  const some = { left: kept('left'), right: kept('right') };
  const input = (side: Side): Input => ({ ...inputs[side], columns: some[side].map((column) => inputs[side].columns[column]!) });
  const [left, right] = [input('left'), input('right')];
  try {
    const isSame = shown(joinLayout(left, right, settings), { left, right }) === shown(whole, inputs);
    return isSame ? some : all;
  } catch {
    return all; // a name that is asked for was another's
  }
}

/** Which columns of the sides the rows are made of, under which names. */
const shown = ({ columns }: JoinLayout, inputs: Record<Side, Input>): string =>
  JSON.stringify(
    columns.map(({ name, source, column }) => [
      name,
      source,
      inputs[source === 'right' ? 'right' : 'left'].columns[column]!.name,
    ]),
  );

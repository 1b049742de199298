export interface Bar {
  label: string;
  own: boolean;
  milliseconds: number;
}
export interface Panel {
  title: string;
  machine: string;
  file: string;
  bars: Bar[];
}
export const columns: { title: string; panels: Panel[] }[];
export const svg: string;
export const markdown: string;

import { type Data, DataType, type RecordBatch } from 'apache-arrow';
import { fileError } from './files.js';

function enough(data: Data): boolean {
  const { length, type } = data;
  if (length === 0) return true;
  if (data.nullCount > 0 && data.nullBitmap && data.nullBitmap.byteLength * 8 < data.offset + length) return false;
  if (DataType.isNull(type)) return true;
  if (DataType.isBool(type)) return data.values.byteLength * 8 >= data.offset + length;
  if (DataType.isUtf8(type) || DataType.isBinary(type) || DataType.isLargeUtf8(type) || DataType.isLargeBinary(type)) {
    const offsets = data.valueOffsets as unknown as ArrayLike<number | bigint>;
    return offsets.length > length && Number(offsets[length]) <= data.values.byteLength;
  }
  if (DataType.isDictionary(type)) return data.values.length >= length;
  if (data.children.length > 0 || !data.values) return data.children.every((child) => enough(child as Data));
  return data.values.length >= length * (data.stride || 1);
}

/** Throws ERR_FILE if a column's buffers are shorter than its length needs, as in a file that lost its end. */
export function checkBatch(path: string, batch: RecordBatch): void {
  batch.data.children.forEach((data, i) => {
    if (data.length !== batch.numRows || !enough(data)) {
      throw fileError(
        path,
        `damaged: column "${batch.schema.fields[i]?.name}" has less data than its ${batch.numRows} rows need`,
      );
    }
  });
}

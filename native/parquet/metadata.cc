#include "parquet/metadata.h"

#include "parquet/thrift_reader.h"

namespace warpjoin::parquet {
namespace {

/// An element of the schema: a leaf, or a group of `children` elements that follow.
struct Element {
  Leaf leaf;
  std::string name;
  bool is_leaf = false;
  uint64_t children = 0;
};

uint64_t natural(int64_t value, const char* what) {
  if (value < 0) throw Damaged(std::string("the number of ") + what + " is " + std::to_string(value));
  return static_cast<uint64_t>(value);
}

void read_unit(ThriftReader& in, ThriftType type, Leaf& leaf) {
  in.structure(type, [&](int id, ThriftType) {
    leaf.unit = id;
    return false;
  });
}

void read_logical(ThriftReader& in, ThriftType type, Leaf& leaf) {
  in.structure(type, [&](int kind, ThriftType kind_type) {
    leaf.logical = kind;
    if (kind_type != ThriftType::structure) return false;
    in.structure([&](int id, ThriftType field) {
      if (kind == static_cast<int>(LogicalType::decimal) && (id == 1 || id == 2)) {
        (id == 1 ? leaf.scale : leaf.precision) = in.integer32(field);
      } else if ((kind == static_cast<int>(LogicalType::time) || kind == static_cast<int>(LogicalType::timestamp)) && id == 1) {
        leaf.utc = in.boolean(field);
      } else if ((kind == static_cast<int>(LogicalType::time) || kind == static_cast<int>(LogicalType::timestamp)) && id == 2) {
        read_unit(in, field, leaf);
      } else if (kind == static_cast<int>(LogicalType::integer) && id == 1) {
        leaf.bit_width = in.integer32(field);
      } else if (kind == static_cast<int>(LogicalType::integer) && id == 2) {
        leaf.is_signed = in.boolean(field);
      } else {
        return false;
      }
      return true;
    });
    return true;
  });
}

Element read_element(ThriftReader& in, ThriftType type) {
  Element element;
  Leaf& leaf = element.leaf;
  in.structure(type, [&](int id, ThriftType field) {
    switch (id) {
      case 1: {
        const int32_t physical = in.integer32(field);
        if (physical < 0 || physical > static_cast<int32_t>(PhysicalType::fixed_bytes)) {
          throw Damaged("there is no type " + std::to_string(physical));
        }
        leaf.physical = static_cast<PhysicalType>(physical);
        element.is_leaf = true;
        return true;
      }
      case 2: leaf.type_length = static_cast<uint32_t>(natural(in.integer32(field), "bytes of a value")); return true;
      case 3: {
        const int32_t repetition = in.integer32(field);
        if (repetition < 0 || repetition > static_cast<int32_t>(Repetition::repeated)) {
          throw Damaged("there is no repetition " + std::to_string(repetition));
        }
        leaf.repetition = static_cast<Repetition>(repetition);
        return true;
      }
      case 4: element.name = std::string(in.binary(field)); return true;
      case 5: element.children = natural(in.integer32(field), "child columns"); return true;
      case 6: leaf.converted = in.integer32(field); return true;
      case 7: leaf.scale = in.integer32(field); return true;
      case 8: leaf.precision = in.integer32(field); return true;
      case 9: leaf.field_id = in.integer32(field); return true;
      case 10: read_logical(in, field, leaf); return true;
      default: return false;
    }
  });
  // Some writers give leaves a number of children: none.
  if (element.children > 0) element.is_leaf = false;
  return element;
}

/// Makes leaves of the elements, which are listed depth first.
std::vector<Leaf> leaves_of(std::vector<Element>& elements) {
  struct Group {
    uint64_t left;  // children that are still to come
    Repetition repetition;
    std::string name;
  };
  std::vector<Leaf> leaves;
  if (elements.empty()) throw Damaged("there is no schema");
  constexpr size_t kMostLevels = 64;
  std::vector<Group> within = {{elements[0].children, Repetition::required, ""}};
  for (size_t i = 1; i < elements.size(); ++i) {
    while (!within.empty() && within.back().left == 0) within.pop_back();
    if (within.empty()) throw Damaged("the schema has more columns than it says");
    --within.back().left;
    Element& element = elements[i];
    if (!element.is_leaf) {
      if (within.size() == kMostLevels) throw Damaged("the schema is nested too deeply");
      within.push_back({element.children, element.leaf.repetition, element.name});
      continue;
    }
    Leaf leaf = std::move(element.leaf);
    const auto count = [&](Repetition repetition) {
      leaf.most_definition += repetition != Repetition::required;
      leaf.most_repetition += repetition == Repetition::repeated;
    };
    for (size_t depth = 1; depth < within.size(); ++depth) {
      leaf.path.push_back(within[depth].name);
      count(within[depth].repetition);
    }
    leaf.path.push_back(std::move(element.name));
    count(leaf.repetition);
    leaves.push_back(std::move(leaf));
  }
  for (const Group& group : within) {
    if (group.left > 0) throw Damaged("the schema has fewer columns than it says");
  }
  return leaves;
}

ChunkPlace read_chunk(ThriftReader& in, ThriftType type, uint64_t file_bytes) {
  ChunkPlace place;
  int64_t data = -1, dictionary = -1;
  bool described = false;
  const auto read_description = [&](int id, ThriftType field) {
    switch (id) {
      case 2:
        in.list(
            field, [](uint64_t) {},
            [&](ThriftType element) {
              constexpr int64_t kLast = 63;
              const int64_t encoding = in.integer(element);
              place.encodings |= uint64_t{1} << (encoding < 0 || encoding > kLast ? kLast : encoding);
            });
        return true;
      case 4: place.codec = in.integer32(field); return true;
      case 5: place.values = natural(in.integer(field), "values of a column"); return true;
      case 6: place.uncompressed = natural(in.integer(field), "bytes of a column"); return true;
      case 7: place.bytes = natural(in.integer(field), "bytes of a column"); return true;
      case 9: data = in.integer(field); return true;
      case 11: dictionary = in.integer(field); return true;
      default: return false;
    }
  };
  in.structure(type, [&](int id, ThriftType field) {
    switch (id) {
      case 1: place.elsewhere |= !in.binary(field).empty(); return true;
      case 3:
        described = true;
        in.structure(field, read_description);
        return true;
      case 8:
      case 9: place.elsewhere = true; return false;  // encrypted
      default: return false;
    }
  });
  if (!described) place.elsewhere = true;
  if (place.elsewhere) return place;
  const int64_t begin = dictionary > 0 && dictionary < data ? dictionary : data;
  if (begin < static_cast<int64_t>(sizeof kMagic) || static_cast<uint64_t>(begin) > file_bytes ||
      place.bytes > file_bytes - static_cast<uint64_t>(begin)) {
    throw Damaged("a column of " + std::to_string(place.bytes) + " bytes at byte " + std::to_string(begin) +
                  " does not fit the file");
  }
  place.begin = static_cast<uint64_t>(begin);
  return place;
}

RowGroup read_group(ThriftReader& in, ThriftType type, uint64_t file_bytes) {
  RowGroup group;
  in.structure(type, [&](int id, ThriftType field) {
    switch (id) {
      case 1:
        in.list(
            field, [&](uint64_t size) { group.chunks.reserve(size); },
            [&](ThriftType element) { group.chunks.push_back(read_chunk(in, element, file_bytes)); });
        return true;
      case 3: group.rows = natural(in.integer(field), "rows"); return true;
      default: return false;
    }
  });
  return group;
}

std::pair<std::string, std::string> read_key_value(ThriftReader& in, ThriftType type) {
  std::pair<std::string, std::string> entry;
  in.structure(type, [&](int id, ThriftType field) {
    if (id != 1 && id != 2) return false;
    (id == 1 ? entry.first : entry.second) = std::string(in.binary(field));
    return true;
  });
  return entry;
}

}  // namespace

FileMetadata read_metadata(std::span<const uint8_t> footer, uint64_t file_bytes) {
  ThriftReader in(footer);
  FileMetadata file;
  std::vector<Element> elements;
  in.structure([&](int id, ThriftType field) {
    switch (id) {
      case 2:
        in.list(
            field, [](uint64_t) {}, [&](ThriftType element) { elements.push_back(read_element(in, element)); });
        return true;
      case 3: file.rows = natural(in.integer(field), "rows"); return true;
      case 4:
        in.list(
            field, [](uint64_t) {}, [&](ThriftType element) { file.groups.push_back(read_group(in, element, file_bytes)); });
        return true;
      case 5:
        in.list(
            field, [](uint64_t) {}, [&](ThriftType element) { file.key_values.push_back(read_key_value(in, element)); });
        return true;
      case 6: file.created_by = std::string(in.binary(field)); return true;
      default: return false;
    }
  });
  file.leaves = leaves_of(elements);
  uint64_t rows = 0;
  for (const RowGroup& group : file.groups) {
    if (group.chunks.size() != file.leaves.size()) {
      throw Damaged("a row group has " + std::to_string(group.chunks.size()) + " columns, the schema " +
                    std::to_string(file.leaves.size()));
    }
    if (group.rows > kMostRows || rows + group.rows > kMostRows) throw Damaged("there are more rows than any file has");
    rows += group.rows;
  }
  if (rows != file.rows) throw Damaged(std::to_string(file.rows) + " rows announced, " + std::to_string(rows) + " found");
  return file;
}

PageHeader read_page_header(std::span<const uint8_t> bytes) {
  ThriftReader in(bytes);
  PageHeader page;
  bool is_data = false;  // otherwise the header is a dictionary's
  const auto read_data = [&](int id, ThriftType field) {
    switch (id) {
      case 1: page.values = natural(in.integer32(field), "values of a page"); return true;
      case 2: page.encoding = in.integer32(field); return true;
      case 3:
        if (!is_data) return false;
        page.level_encoding = in.integer32(field);
        return true;
      default: return false;
    }
  };
  const auto read_data_v2 = [&](int id, ThriftType field) {
    switch (id) {
      case 1: page.values = natural(in.integer32(field), "values of a page"); return true;
      case 4: page.encoding = in.integer32(field); return true;
      case 5: page.definition_bytes = natural(in.integer32(field), "bytes of levels"); return true;
      case 6: page.repetition_bytes = natural(in.integer32(field), "bytes of levels"); return true;
      case 7: page.compressed = in.boolean(field); return true;
      default: return false;
    }
  };
  in.structure([&](int id, ThriftType field) {
    switch (id) {
      case 1: page.type = in.integer32(field); return true;
      case 2: page.uncompressed = natural(in.integer32(field), "bytes of a page"); return true;
      case 3: page.bytes = natural(in.integer32(field), "bytes of a page"); return true;
      case 5:
        is_data = true;
        in.structure(field, read_data);
        return true;
      case 7:
        is_data = false;
        in.structure(field, read_data);
        return true;
      case 8: in.structure(field, read_data_v2); return true;
      default: return false;
    }
  });
  page.header_bytes = in.position();
  return page;
}

}  // namespace warpjoin::parquet

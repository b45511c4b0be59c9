//! The ledger's Parquet, read back.

use crate::sample;
use lastmeter_ledger::parquet::{Table, write};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};

fn read(table: Table) -> Vec<Row> {
    let mut file = Vec::new();
    write(&sample::ledger(), table, &mut file).unwrap();
    if let Some(dir) = std::env::var_os("LOOK") {
        let name = format!("{}.parquet", table.name());
        std::fs::write(std::path::Path::new(&dir).join(name), &file).unwrap();
    }
    let reader = SerializedFileReader::new(bytes::Bytes::from(file)).unwrap();
    reader.get_row_iter(None).unwrap().map(Result::unwrap).collect()
}

fn field<'a>(row: &'a Row, name: &str) -> &'a Field {
    row.get_column_iter().find(|(column, _)| *column == name).unwrap().1
}

#[test]
fn stages_read_back_in_path_order_with_their_numbers() {
    let ledger = sample::ledger();
    let rows = read(Table::Stages);
    assert_eq!(rows.len(), ledger.paths[0].stages.len());
    for (row, stage) in rows.iter().zip(&ledger.paths[0].stages) {
        assert_eq!(field(row, "stage"), &Field::Str(stage.name.clone()));
        assert_eq!(field(row, "packets"), &Field::ULong(stage.packets));
        assert_eq!(field(row, "wait_p99"), &Field::Double(stage.wait.unwrap().p99.unwrap()));
        assert_eq!(field(row, "seed"), &Field::ULong(7));
        let resource = stage.resource.clone().map_or(Field::Null, Field::Str);
        assert_eq!(field(row, "resource"), &resource);
    }
}

#[test]
fn each_table_has_a_row_for_each_thing() {
    let ledger = sample::ledger();
    let uses: usize = ledger.resources.iter().map(|one| one.by_stage.len()).sum();
    let rows = [1, 10, 2, ledger.resources.len(), uses, ledger.what_ifs.len(), 5, 0, 1, 1, 4, 2];
    assert_eq!(Table::ALL.map(|table| read(table).len()), rows);
}

#[test]
fn what_was_not_measured_is_null() {
    let rows = read(Table::WhatIfs);
    assert_eq!(field(&rows[0], "measured"), &Field::Null);
    assert_eq!(field(&rows[3], "measured"), &Field::Double(1.876e9));
}

//! Columns: what Parquet files, data frames and Arrow tables are converted from and to.

use ::parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use ::parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use ::parquet::file::metadata::KeyValue;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use ::parquet::record::Field;
use ::parquet::schema::types::Type;
use serde::{Deserialize, Serialize};
use std::io::{Error, Result, Write};
use std::sync::Arc;

/// The values of a column, one for each row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Values {
    /// Text.
    Text(Vec<String>),
    /// Text, may be absent.
    TextOrNone(Vec<Option<String>>),
    /// Yes or no.
    Flag(Vec<bool>),
    /// A count.
    Count(Vec<u64>),
    /// A count, may be absent.
    CountOrNone(Vec<Option<u64>>),
    /// A number, in SI base units.
    Real(Vec<f64>),
    /// A number, may be absent.
    RealOrNone(Vec<Option<f64>>),
}

impl Values {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Values::Text(values) => values.len(),
            Values::TextOrNone(values) => values.len(),
            Values::Flag(values) => values.len(),
            Values::Count(values) => values.len(),
            Values::CountOrNone(values) => values.len(),
            Values::Real(values) => values.len(),
            Values::RealOrNone(values) => values.len(),
        }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn append(&mut self, other: Values) -> bool {
        match (self, other) {
            (Values::Text(ours), Values::Text(theirs)) => ours.extend(theirs),
            (Values::TextOrNone(ours), Values::TextOrNone(theirs)) => ours.extend(theirs),
            (Values::Flag(ours), Values::Flag(theirs)) => ours.extend(theirs),
            (Values::Count(ours), Values::Count(theirs)) => ours.extend(theirs),
            (Values::CountOrNone(ours), Values::CountOrNone(theirs)) => ours.extend(theirs),
            (Values::Real(ours), Values::Real(theirs)) => ours.extend(theirs),
            (Values::RealOrNone(ours), Values::RealOrNone(theirs)) => ours.extend(theirs),
            _ => return false,
        }
        true
    }

    fn kind(&self) -> (Physical, Option<LogicalType>, Repetition) {
        let count = Some(LogicalType::integer(64, false));
        match self {
            Values::Text(_) => {
                (Physical::BYTE_ARRAY, Some(LogicalType::String), Repetition::REQUIRED)
            }
            Values::TextOrNone(_) => {
                (Physical::BYTE_ARRAY, Some(LogicalType::String), Repetition::OPTIONAL)
            }
            Values::Flag(_) => (Physical::BOOLEAN, None, Repetition::REQUIRED),
            Values::Count(_) => (Physical::INT64, count, Repetition::REQUIRED),
            Values::CountOrNone(_) => (Physical::INT64, count, Repetition::OPTIONAL),
            Values::Real(_) => (Physical::DOUBLE, None, Repetition::REQUIRED),
            Values::RealOrNone(_) => (Physical::DOUBLE, None, Repetition::OPTIONAL),
        }
    }

    /// An empty column of the type of a file's column.
    fn of(column: &Type) -> Option<Values> {
        let optional = column.get_basic_info().repetition() == Repetition::OPTIONAL;
        Some(match (column.get_physical_type(), optional) {
            (Physical::BYTE_ARRAY, false) => Values::Text(Vec::new()),
            (Physical::BYTE_ARRAY, true) => Values::TextOrNone(Vec::new()),
            (Physical::BOOLEAN, false) => Values::Flag(Vec::new()),
            (Physical::INT64, false) => Values::Count(Vec::new()),
            (Physical::INT64, true) => Values::CountOrNone(Vec::new()),
            (Physical::DOUBLE, false) => Values::Real(Vec::new()),
            (Physical::DOUBLE, true) => Values::RealOrNone(Vec::new()),
            _ => return None,
        })
    }

    /// Adds a value read from a file; returns whether its type matches.
    fn push(&mut self, field: &Field) -> bool {
        match (self, field) {
            (Values::Text(values), Field::Str(text)) => values.push(text.clone()),
            (Values::TextOrNone(values), Field::Str(text)) => values.push(Some(text.clone())),
            (Values::TextOrNone(values), Field::Null) => values.push(None),
            (Values::Flag(values), Field::Bool(flag)) => values.push(*flag),
            (Values::Count(values), Field::ULong(count)) => values.push(*count),
            (Values::CountOrNone(values), Field::ULong(count)) => values.push(Some(*count)),
            (Values::CountOrNone(values), Field::Null) => values.push(None),
            (Values::Real(values), Field::Double(number)) => values.push(*number),
            (Values::RealOrNone(values), Field::Double(number)) => values.push(Some(*number)),
            (Values::RealOrNone(values), Field::Null) => values.push(None),
            _ => return false,
        }
        true
    }

    fn write<W: Write + Send>(&self, group: &mut SerializedRowGroupWriter<'_, W>) -> Result<()> {
        let column = group.next_column().map_err(Error::other)?;
        let mut column = column.expect("the schema has a field for each column");
        let text = |text: &String| ByteArray::from(text.as_str());
        // Parquet keeps unsigned numbers in the bits of signed ones.
        let signed = |&count: &u64| count as i64;
        let written = match self {
            Values::Text(values) => {
                let values: Vec<ByteArray> = values.iter().map(text).collect();
                column.typed::<ByteArrayType>().write_batch(&values, None, None)
            }
            Values::TextOrNone(values) => {
                let present: Vec<ByteArray> = values.iter().flatten().map(text).collect();
                column.typed::<ByteArrayType>().write_batch(&present, Some(&levels(values)), None)
            }
            Values::Flag(values) => column.typed::<BoolType>().write_batch(values, None, None),
            Values::Count(values) => {
                let values: Vec<i64> = values.iter().map(signed).collect();
                column.typed::<Int64Type>().write_batch(&values, None, None)
            }
            Values::CountOrNone(values) => {
                let present: Vec<i64> = values.iter().flatten().map(signed).collect();
                column.typed::<Int64Type>().write_batch(&present, Some(&levels(values)), None)
            }
            Values::Real(values) => column.typed::<DoubleType>().write_batch(values, None, None),
            Values::RealOrNone(values) => {
                let present: Vec<f64> = values.iter().flatten().copied().collect();
                column.typed::<DoubleType>().write_batch(&present, Some(&levels(values)), None)
            }
        };
        written.map_err(Error::other)?;
        column.close().map_err(Error::other)
    }
}

/// Definition levels: 1 where there is a value, 0 where there is none.
fn levels<T>(values: &[Option<T>]) -> Vec<i16> {
    values.iter().map(|value| i16::from(value.is_some())).collect()
}

/// Named columns, each as long as the others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Columns(pub Vec<(String, Values)>);

impl Columns {
    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.0.first().map_or(0, |(_, values)| values.len())
    }

    /// Adds a column.
    pub fn add(&mut self, name: impl Into<String>, values: Values) {
        self.0.push((name.into(), values));
    }

    /// Adds a column of text.
    pub fn text<T>(&mut self, name: &str, rows: &[T], value: impl Fn(&T) -> &str) {
        self.add(name, Values::Text(rows.iter().map(|row| value(row).to_owned()).collect()));
    }
    /// Adds a column of counts.
    pub fn count<T>(&mut self, name: &str, rows: &[T], value: impl Fn(&T) -> u64) {
        self.add(name, Values::Count(rows.iter().map(value).collect()));
    }
    /// Adds a column of numbers.
    pub fn real<T>(&mut self, name: &str, rows: &[T], value: impl Fn(&T) -> f64) {
        self.add(name, Values::Real(rows.iter().map(value).collect()));
    }

    /// The column of this name.
    pub fn get(&self, name: &str) -> Option<&Values> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, values)| values)
    }

    /// Adds the rows of `other`, which has the same columns, or is the first to have any.
    ///
    /// # Errors
    /// If the columns differ; the message says which.
    pub fn append(&mut self, other: Columns) -> std::result::Result<(), String> {
        if self.0.is_empty() {
            *self = other;
            return Ok(());
        }
        let same = self.0.len() == other.0.len()
            && self.0.iter().zip(&other.0).all(|((ours, _), (theirs, _))| ours == theirs);
        if !same {
            return Err("the columns differ".to_owned());
        }
        for ((name, ours), (_, theirs)) in self.0.iter_mut().zip(other.0) {
            if !ours.append(theirs) {
                return Err(format!("the column `{name}` has two types"));
            }
        }
        Ok(())
    }

    /// Writes the columns as a Parquet file, with `about` as its key-value metadata. Pages are
    /// compressed with Snappy.
    ///
    /// ```
    /// use lastmeter_ledger::columns::{Columns, Values};
    /// let columns = Columns(vec![("links.0.rate".into(), Values::Real(vec![1e6]))]);
    /// let mut file = Vec::new();
    /// columns.write("runs", &[], &mut file)?;
    /// assert_eq!(Columns::read(file)?, columns);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// If writing to `out` fails.
    pub fn write(&self, name: &str, about: &[(&str, &str)], out: impl Write + Send) -> Result<()> {
        let field = |(name, values): &(String, Values)| {
            let (physical, logical, repetition) = values.kind();
            let builder = Type::primitive_type_builder(name, physical);
            builder.with_logical_type(logical).with_repetition(repetition).build().map(Arc::new)
        };
        let fields = self.0.iter().map(field).collect::<std::result::Result<_, _>>();
        let fields = fields.map_err(Error::other)?;
        let schema = Type::group_type_builder(name).with_fields(fields).build();
        let schema = Arc::new(schema.map_err(Error::other)?);
        let pair = |&(key, value): &(&str, &str)| KeyValue::new(key.to_owned(), value.to_owned());
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_key_value_metadata(Some(about.iter().map(pair).collect()))
            .build();
        let writer = SerializedFileWriter::new(out, schema, Arc::new(properties));
        let mut writer = writer.map_err(Error::other)?;
        let mut group = writer.next_row_group().map_err(Error::other)?;
        for (_, values) in &self.0 {
            values.write(&mut group)?;
        }
        group.close().map_err(Error::other)?;
        writer.close().map_err(Error::other)?;
        Ok(())
    }

    /// Reads a Parquet file as written by [`Columns::write`].
    ///
    /// # Errors
    /// If it is not such a file; the message says why.
    pub fn read(file: Vec<u8>) -> Result<Columns> {
        let reader = SerializedFileReader::new(bytes::Bytes::from(file)).map_err(Error::other)?;
        let schema = reader.metadata().file_metadata().schema();
        let mut columns = Columns::default();
        for field in schema.get_fields() {
            let values = match field.is_primitive() {
                true => Values::of(field),
                false => None,
            };
            let odd = || Error::other(format!("the column `{}` has another type", field.name()));
            columns.add(field.name(), values.ok_or_else(odd)?);
        }
        for row in reader.get_row_iter(None).map_err(Error::other)? {
            let row = row.map_err(Error::other)?;
            debug_assert_eq!(row.len(), columns.0.len());
            for ((name, values), (_, field)) in columns.0.iter_mut().zip(row.get_column_iter()) {
                if !values.push(field) {
                    return Err(Error::other(format!("the column `{name}` has another type")));
                }
            }
        }
        Ok(columns)
    }
}

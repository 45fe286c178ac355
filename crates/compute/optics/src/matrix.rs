//! Matrices from files of other programs: NumPy's NPY and FITS, distinguished by their first bytes.

/// Maximum size of a file's header, in bytes.
const HEAD_MAX: usize = 64 << 10;
/// Bytes of a FITS block, and of a line of its header.
const BLOCK: usize = 2880;
const CARD: usize = 80;

/// A file that does not hold a suitable matrix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MatrixError {
    /// The file is neither NPY nor FITS.
    #[error("neither NPY nor FITS; expected a file that NumPy's `save` or a FITS library wrote")]
    Format,
    /// The header has an unsupported value.
    #[error("{what} is {found}; expected {expected}")]
    Head {
        /// Name of the value.
        what: &'static str,
        /// Value in the file.
        found: String,
        /// Supported values.
        expected: &'static str,
    },
    /// The file is truncated.
    #[error("{found} bytes of numbers; expected {expected}: the file is cut off")]
    Short {
        /// Bytes after the header.
        found: usize,
        /// Bytes that the shape needs.
        expected: usize,
    },
    /// The matrix has another shape than required.
    #[error("{found_rows} x {found_columns} numbers; expected {rows} x {columns}")]
    Shape {
        /// Rows in the file.
        found_rows: usize,
        /// Columns in the file.
        found_columns: usize,
        /// Required rows.
        rows: usize,
        /// Required columns.
        columns: usize,
    },
    /// An element is not finite.
    #[error("row {row}, column {column} (from 0) is not a finite single-precision number; expected numbers")]
    NotFinite {
        /// Row of the element.
        row: usize,
        /// Column of the element.
        column: usize,
    },
}

/// Layout of the numbers in a file.
#[derive(Clone, Copy)]
struct Form {
    rows: usize,
    columns: usize,
    bytes: usize,
    big: bool,
    /// Column-major order.
    columns_first: bool,
}

/// Maximum size of a file with such a matrix, in bytes. Reading more is unnecessary.
#[must_use]
pub const fn bytes_max(rows: usize, columns: usize) -> u64 {
    (rows * columns * 8 + HEAD_MAX + BLOCK) as u64
}

/// Reads the matrix of a file in row-major order. The file must have `rows` rows and `columns` columns; a one-dimensional array is a column.
/// Elements have 32 or 64 bits. From FITS it reads the first image in NumPy's orientation: NAXIS1 is the number of
/// columns. Allocates only the matrix. Accepts arbitrary bytes.
///
/// # Errors
/// The file does not hold such a matrix. The shape is checked first, so a file with another shape may be truncated.
pub fn read(bytes: &[u8], rows: usize, columns: usize) -> Result<Vec<f32>, MatrixError> {
    let (form, numbers) = if bytes.starts_with(b"\x93NUMPY") {
        npy_head(bytes)?
    } else if bytes.starts_with(b"SIMPLE  =") {
        fits_head(bytes)?
    } else {
        return Err(MatrixError::Format);
    };
    let (found_rows, found_columns) = (form.rows, form.columns);
    if (found_rows, found_columns) != (rows, columns) {
        return Err(MatrixError::Shape { found_rows, found_columns, rows, columns });
    }
    let expected = rows * columns * form.bytes;
    let numbers = numbers.get(..expected).ok_or(MatrixError::Short { found: numbers.len(), expected })?;
    let number = |bytes: &[u8]| match (bytes, form.big) {
        (&[a, b, c, d], true) => f32::from_be_bytes([a, b, c, d]),
        (&[a, b, c, d], false) => f32::from_le_bytes([a, b, c, d]),
        (eight, big) => {
            let eight = eight.first_chunk().copied().unwrap_or_default();
            (if big { f64::from_be_bytes(eight) } else { f64::from_le_bytes(eight) }) as f32
        }
    };
    let at = |row: usize, column: usize| {
        let place = if form.columns_first { column * rows + row } else { row * columns + column };
        number(&numbers[place * form.bytes..][..form.bytes])
    };
    let places = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
    let mut values = Vec::with_capacity(rows * columns);
    for (row, column) in places {
        let value = at(row, column);
        if !value.is_finite() {
            return Err(MatrixError::NotFinite { row, column });
        }
        values.push(value);
    }
    Ok(values)
}

/// Bytes of an NPY 1.0 file with numbers in row-major order.
#[must_use]
pub fn npy(rows: usize, columns: usize, values: &[f32]) -> Vec<u8> {
    let mut head = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {columns}), }}");
    // The header ends with a newline, at a multiple of 64 bytes.
    while (10 + head.len() + 1) % 64 != 0 {
        head.push(' ');
    }
    head.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((head.len() as u16).to_le_bytes());
    bytes.extend(head.as_bytes());
    values.iter().for_each(|value| bytes.extend(value.to_le_bytes()));
    bytes
}

fn bad(what: &'static str, found: impl Into<String>, expected: &'static str) -> MatrixError {
    MatrixError::Head { what, found: found.into(), expected }
}

fn npy_head(bytes: &[u8]) -> Result<(Form, &[u8]), MatrixError> {
    let cut = MatrixError::Short { found: 0, expected: bytes.len().max(12) };
    let (begin, length) = match bytes.get(6) {
        Some(1) => (10, bytes.get(8..10).map(|two| usize::from(two[0]) | usize::from(two[1]) << 8)),
        _ => (12, bytes.get(8..12).map(|four| four.iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte)))),
    };
    let length = length.filter(|length| *length <= HEAD_MAX).ok_or(cut.clone())?;
    let head = bytes.get(begin..begin + length).ok_or(cut)?;
    let head = String::from_utf8_lossy(head);
    let after = |key: &str| head.split_once(key).map_or("", |(_, rest)| rest.trim_start_matches([' ', ':']));
    let kind = after("'descr'").trim_start_matches('\'').split('\'').next().unwrap_or_default();
    let (bytes_each, big) = match kind {
        "<f4" => (4, false),
        "<f8" => (8, false),
        ">f4" => (4, true),
        ">f8" => (8, true),
        other => return Err(bad("the kind of numbers", format!("{other:?}"), "<f4, <f8, >f4 or >f8")),
    };
    let shape = after("'shape'").trim_start_matches('(').split(')').next().unwrap_or_default();
    let sizes: Vec<Option<usize>> =
        shape.split(',').map(str::trim).filter(|size| !size.is_empty()).map(|size| size.parse().ok()).collect();
    let (rows, columns) = match sizes[..] {
        [Some(rows)] => (rows, 1),
        [Some(rows), Some(columns)] => (rows, columns),
        _ => return Err(bad("the shape", format!("({shape})"), "one or two dimensions")),
    };
    let columns_first = after("'fortran_order'").starts_with("True");
    Ok((Form { rows, columns, bytes: bytes_each, big, columns_first }, &bytes[begin + length..]))
}

fn fits_head(bytes: &[u8]) -> Result<(Form, &[u8]), MatrixError> {
    let mut value = [None; 6];
    let names = ["BITPIX", "NAXIS", "NAXIS1", "NAXIS2", "BSCALE", "BZERO"];
    let cards = bytes[..bytes.len().min(HEAD_MAX)].chunks_exact(CARD);
    let mut end = None;
    for (number, card) in cards.enumerate() {
        let name = card[..8].trim_ascii_end();
        if name == b"END" {
            end = Some(number + 1);
            break;
        }
        if let Some(index) = names.iter().position(|known| known.as_bytes() == name) {
            let text = String::from_utf8_lossy(&card[10..]).into_owned();
            value[index] = text.split('/').next().unwrap_or_default().trim().parse::<f64>().ok();
        }
    }
    let end = end.ok_or_else(|| bad("the head", "without END", "a head of at most 64 KiB"))?;
    let [bits, axes, columns, rows, scale, zero] = value;
    let (bytes_each, axes) = match (bits, axes) {
        (Some(-32.0), Some(axes)) => (4, axes),
        (Some(-64.0), Some(axes)) => (8, axes),
        (bits, _) => return Err(bad("BITPIX", format!("{bits:?}"), "-32 or -64")),
    };
    if scale.is_some_and(|scale| scale != 1.0) || zero.is_some_and(|zero| zero != 0.0) {
        return Err(bad("BSCALE or BZERO", "set", "numbers as they are"));
    }
    let size = |value: Option<f64>| value.filter(|size| (0.0..1e9).contains(size)).map(|size| size as usize);
    let (rows, columns) = match (axes as i64, size(columns), size(rows)) {
        (1, Some(only), _) => (only, 1),
        (2, Some(columns), Some(rows)) => (rows, columns),
        _ => return Err(bad("NAXIS", format!("{axes}"), "an image of one or two dimensions")),
    };
    let numbers = bytes.get((end * CARD).next_multiple_of(BLOCK)..).unwrap_or_default();
    Ok((Form { rows, columns, bytes: bytes_each, big: true, columns_first: false }, numbers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn a_fits(cards: &[&str], numbers: &[u8]) -> Vec<u8> {
        let mut bytes: Vec<u8> = cards.iter().flat_map(|card| format!("{card:<80}").into_bytes()).collect();
        bytes.resize(BLOCK, b' ');
        bytes.extend(numbers);
        bytes
    }

    #[test]
    fn npy_and_fits_give_the_same_numbers_row_by_row() {
        let values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.5];
        let expected = Ok(values.to_vec());
        assert_eq!(read(&npy(2, 3, &values), 2, 3), expected);
        let numbers: Vec<u8> = values.iter().flat_map(|value| f64::from(*value).to_be_bytes()).collect();
        let cards = [
            "SIMPLE  =                    T",
            "BITPIX  =                  -64 / double",
            "NAXIS   =                    2",
            "NAXIS1  =                    3",
            "NAXIS2  =                    2",
            "END",
        ];
        assert_eq!(read(&a_fits(&cards, &numbers), 2, 3), expected);
        // In column-major order, as in Fortran.
        let mut fortran = npy(2, 3, &[1.0, 4.0, 2.0, 5.0, 3.0, 6.5]);
        let at = fortran.windows(5).position(|word| word == b"False").unwrap();
        fortran[at..at + 5].copy_from_slice(b"True ");
        assert_eq!(read(&fortran, 2, 3), expected);
    }

    #[test]
    fn a_malformed_matrix_file_is_refused_with_the_found_content() {
        let say = |bytes: &[u8]| read(bytes, 2, 2).unwrap_err().to_string();
        assert!(say(b"P5 3 2").contains("neither NPY nor FITS"));
        let mut file = npy(2, 2, &[1.0, 2.0, f32::NAN, 4.0]);
        assert!(say(&file).contains("row 1, column 0"));
        file.pop();
        assert_eq!(say(&file), "15 bytes of numbers; expected 16: the file is cut off");
        assert_eq!(say(&npy(1, 2, &[1.0, 2.0])), "1 x 2 numbers; expected 2 x 2");
        // A larger matrix, of which only as many bytes were read as a matrix of the right shape can have.
        let large = npy(320, 320, &[0.0; 320 * 320]);
        assert_eq!(say(&large[..300]), "320 x 320 numbers; expected 2 x 2");
        assert!(
            say(&a_fits(&["SIMPLE  =                    T", "BITPIX  =                   16", "END"], &[]))
                .contains("BITPIX")
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_bytes_cause_a_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..300), of in 0..3usize, shape in "[0-9]|.{0,40}", rows in 0..9usize) {
            match of {
                1 => bytes = [&b"\x93NUMPY\x01\x00\x40\x00{'descr': '<f4', 'shape': ("[..], shape.as_bytes(), b")", &bytes].concat(),
                2 => bytes = a_fits(&["SIMPLE  =", &format!("NAXIS1  = {shape}"), "BITPIX  = -32", "NAXIS   = 1", "END"], &bytes),
                _ => {}
            }
            if let Ok(values) = read(&bytes, rows, 1) {
                prop_assert_eq!(values.len(), rows);
            }
        }
    }
}

//! Records as text, in kcat's letters: `%k\t%s\n` prints records, and reads them from lines.

use std::io::{self, Write};

use bytes::Bytes;
use quorate_core::time::Timestamp;
use quorate_net::client::{ConsumedRecord, Message, RecordHeader};

/// A format taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordFormat(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Literal(Vec<u8>),
    Topic,
    Partition,
    Offset,
    Key,
    KeyLength,
    Value,
    ValueLength,
    Headers,
    Timestamp,
}

impl RecordFormat {
    /// # Errors
    ///
    /// A sentence about the letter that is not known.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut literal = Vec::new();
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            let piece = match c {
                '\\' => {
                    literal.push(escaped(&mut chars)?);
                    continue;
                }
                '%' => match chars.next() {
                    Some('%') => {
                        literal.push(b'%');
                        continue;
                    }
                    Some(letter) => letter_piece(letter)?,
                    None => return Err("a format cannot end with a lone %: write %%".to_owned()),
                },
                c => {
                    literal.extend(c.encode_utf8(&mut [0; 4]).as_bytes());
                    continue;
                }
            };
            if !literal.is_empty() {
                pieces.push(Piece::Literal(std::mem::take(&mut literal)));
            }
            pieces.push(piece);
        }
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal));
        }
        Ok(Self(pieces))
    }

    pub(crate) fn write(
        &self,
        out: &mut impl Write,
        topic: &str,
        partition: i32,
        record: &ConsumedRecord,
    ) -> io::Result<()> {
        // kcat prints a null as NULL in headers and as nothing elsewhere, and its length as -1.
        let length = |part: &Option<Bytes>| part.as_ref().map_or(-1, |part| part.len() as i64);
        for piece in &self.0 {
            match piece {
                Piece::Literal(bytes) => out.write_all(bytes)?,
                Piece::Topic => write!(out, "{topic}")?,
                Piece::Partition => write!(out, "{partition}")?,
                Piece::Offset => write!(out, "{}", record.offset)?,
                Piece::Key => out.write_all(record.key.as_deref().unwrap_or_default())?,
                Piece::KeyLength => write!(out, "{}", length(&record.key))?,
                Piece::Value => out.write_all(record.value.as_deref().unwrap_or_default())?,
                Piece::ValueLength => write!(out, "{}", length(&record.value))?,
                Piece::Timestamp => write!(out, "{}", record.timestamp)?,
                Piece::Headers => {
                    for (place, header) in record.headers.iter().enumerate() {
                        out.write_all(if place > 0 { b"," } else { b"" })?;
                        out.write_all(&header.key)?;
                        out.write_all(b"=")?;
                        out.write_all(header.value.as_deref().unwrap_or(b"NULL"))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether lines of this format can be read back into records.
    pub(crate) fn check_readable(&self) -> Result<(), String> {
        let mut field_before = false;
        for piece in &self.0 {
            let field = match piece {
                Piece::Literal(_) => false,
                Piece::Topic | Piece::Offset | Piece::KeyLength | Piece::ValueLength => {
                    return Err("only %k %s %h %p %T can be read from a line".to_owned());
                }
                _ => true,
            };
            if field && field_before {
                return Err("two fields need something between them".to_owned());
            }
            field_before = field;
        }
        Ok(())
    }

    /// Reads a line, its end left off. Each field reaches to the next literal.
    pub(crate) fn read(&self, line: &[u8]) -> Result<Message, String> {
        let mut message = Message::default();
        let mut rest = line;
        let mut pieces = self.0.iter().peekable();
        while let Some(piece) = pieces.next() {
            if let Piece::Literal(literal) = piece {
                // The end of the line is not part of the line.
                let literal = literal.strip_suffix(b"\n").unwrap_or(literal);
                rest = rest.strip_prefix(literal).ok_or_else(|| missing(literal))?;
                continue;
            }
            let end = match pieces.peek() {
                Some(Piece::Literal(literal)) if literal != b"\n" => {
                    let literal = literal.strip_suffix(b"\n").unwrap_or(literal);
                    find(rest, literal).ok_or_else(|| missing(literal))?
                }
                _ => rest.len(),
            };
            let (field, after) = rest.split_at(end);
            take_field(&mut message, piece, field)?;
            rest = after;
        }
        match rest {
            [] => Ok(message),
            rest => Err(format!("{} bytes are left over", rest.len())),
        }
    }
}

fn missing(literal: &[u8]) -> String {
    format!("`{}` is missing", String::from_utf8_lossy(literal))
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len().max(1)).position(|window| window == wanted)
}

fn take_field(message: &mut Message, piece: &Piece, field: &[u8]) -> Result<(), String> {
    let text = || String::from_utf8_lossy(field).into_owned();
    match piece {
        Piece::Key => message.key = Some(Bytes::copy_from_slice(field)),
        Piece::Value => message.value = Some(Bytes::copy_from_slice(field)),
        Piece::Partition => {
            let number = text().parse().map_err(|_| format!("`{}` is no partition", text()))?;
            message.partition = Some(number);
        }
        Piece::Timestamp => {
            let number = text().parse().map_err(|_| format!("`{}` is no timestamp", text()))?;
            message.timestamp = Some(Timestamp(number));
        }
        Piece::Headers if field.is_empty() => {}
        Piece::Headers => {
            for header in field.split(|&byte| byte == b',') {
                message.headers.push(parse_header(header)?);
            }
        }
        _ => return Err("only %k %s %h %p %T can be read from a line".to_owned()),
    }
    Ok(())
}

/// `name=value`; a name alone has a null value.
pub(crate) fn parse_header(text: &[u8]) -> Result<RecordHeader, String> {
    let (key, value) = match find(text, b"=") {
        Some(at) => (&text[..at], Some(Bytes::copy_from_slice(&text[at + 1..]))),
        None => (text, None),
    };
    if key.is_empty() {
        return Err("a header has a name: NAME=VALUE".to_owned());
    }
    Ok(RecordHeader { key: Bytes::copy_from_slice(key), value })
}

fn letter_piece(letter: char) -> Result<Piece, String> {
    Ok(match letter {
        't' => Piece::Topic,
        'p' => Piece::Partition,
        'o' => Piece::Offset,
        'k' => Piece::Key,
        'K' => Piece::KeyLength,
        's' => Piece::Value,
        'S' => Piece::ValueLength,
        'h' => Piece::Headers,
        'T' => Piece::Timestamp,
        other => {
            return Err(format!(
                "%{other} is not known: %t topic, %p partition, %o offset, %k key, %s value, \
                 %h headers, %T timestamp, %K and %S lengths, %% a percent sign"
            ));
        }
    })
}

fn escaped(chars: &mut std::str::Chars<'_>) -> Result<u8, String> {
    match chars.next() {
        Some('n') => Ok(b'\n'),
        Some('t') => Ok(b'\t'),
        Some('r') => Ok(b'\r'),
        Some('0') => Ok(0),
        Some('\\') => Ok(b'\\'),
        Some('x') => {
            let digits: String = chars.by_ref().take(2).collect();
            u8::from_str_radix(&digits, 16).map_err(|_| format!("\\x{digits} is no byte"))
        }
        Some(other) => Err(format!("\\{other} is not known: \\n \\t \\r \\0 \\\\ \\x41")),
        None => Err("a format cannot end with a lone \\: write \\\\".to_owned()),
    }
}

/// A delimiter as written on a command line: `\t` is a tab.
pub(crate) fn unescaped(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => bytes.push(escaped(&mut chars)?),
            c => bytes.extend(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use quorate_core::id::Offset;

    use super::*;

    fn record() -> ConsumedRecord {
        ConsumedRecord {
            offset: Offset(7),
            timestamp: Timestamp(1000),
            key: Some(Bytes::from_static(b"k")),
            value: None,
            headers: vec![
                RecordHeader { key: Bytes::from_static(b"a"), value: None },
                RecordHeader { key: Bytes::from_static(b"a"), value: Some(Bytes::new()) },
            ],
        }
    }

    #[test]
    fn records_are_written_in_kcats_letters() {
        let format = RecordFormat::parse("%t-%p@%o %T %k(%K)=%s(%S) [%h] 100%%\\n").unwrap();
        let mut out = Vec::new();
        format.write(&mut out, "orders", 3, &record()).unwrap();
        let expected = "orders-3@7 1000 k(1)=(-1) [a=NULL,a=] 100%\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn lines_are_read_back() {
        let format = RecordFormat::parse("%p:%T:%k\\t%s|%h\\n").unwrap();
        format.check_readable().unwrap();
        let message = format.read(b"2:1000:key\tvalue|a=1,b").unwrap();
        assert_eq!((message.partition, message.timestamp), (Some(2), Some(Timestamp(1000))));
        assert_eq!(message.key.as_deref(), Some(&b"key"[..]));
        assert_eq!(message.value.as_deref(), Some(&b"value"[..]));
        assert_eq!(message.headers.len(), 2);
        assert_eq!(message.headers[1].value, None);

        assert!(format.read(b"2:1000:key value").is_err());
        assert!(format.read(b"two:1000:k\tv|").is_err());
        let wrong = ["%", "%q", "\\q", "\\", "\\xzz"];
        assert!(wrong.iter().all(|format| RecordFormat::parse(format).is_err()));
        for unreadable in ["%k%s", "%o %s"] {
            assert!(RecordFormat::parse(unreadable).unwrap().check_readable().is_err());
        }
    }

    #[test]
    fn delimiters_may_be_escaped() {
        assert_eq!(unescaped("\\t"), Ok(vec![b'\t']));
        assert_eq!(unescaped("=>\\x00"), Ok(vec![b'=', b'>', 0]));
        assert!(parse_header(b"=1").is_err());
    }
}

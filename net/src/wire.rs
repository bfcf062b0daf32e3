//! Kafka's values on the wire: how each kind of value is read and written in a given version.
//! What the messages are made of is said in `kafka/messages`.

mod read;
mod records;
#[cfg(feature = "sample")]
pub mod sample;
mod text;
pub mod varint;
mod write;

use std::fmt;

use bytes::Bytes;
use quorate_core::id::TopicId;

pub use read::{Budget, Reader};
pub use records::Records;
pub use text::Text;
pub use write::Writer;

/// The version of a message, and whether it is of the flexible kind: compact lengths and tagged
/// fields. KIP-482.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    pub version: i16,
    pub flexible: bool,
}

/// Why bytes are not a message, or a message cannot be bytes, and in which field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireError {
    pub kind: WireErrorKind,
    /// `Struct.field`, the innermost that is known.
    pub field: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireErrorKind {
    /// The frame ends before `wanted` more bytes.
    Truncated { wanted: usize },
    /// A length below −1.
    NegativeLength { length: i32 },
    /// A varint that does not end, or does not fit 32 bits.
    Varint,
    /// Text that is not UTF-8.
    NotUtf8,
    /// Null where the version does not allow it.
    Null,
    /// A known tagged field that does not fill its announced size.
    TagSize { tag: u32 },
    /// An array of `count` elements would cost more memory than the frame may.
    OverBudget { count: usize },
    /// Something of `length` bytes, too long for its length field.
    TooLong { length: usize },
}

impl WireError {
    /// Names the field, unless a field inside it was named already.
    #[must_use]
    pub(crate) fn in_field(mut self, field: &'static str) -> Self {
        self.field.get_or_insert(field);
        self
    }
}

impl From<WireErrorKind> for WireError {
    fn from(kind: WireErrorKind) -> Self {
        Self { kind, field: None }
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            WireErrorKind::Truncated { wanted } => {
                write!(f, "the bytes end before {wanted} more that should follow")
            }
            WireErrorKind::NegativeLength { length } => write!(f, "{length} is not a length"),
            WireErrorKind::Varint => write!(f, "a varint does not end within 32 bits"),
            WireErrorKind::NotUtf8 => write!(f, "text is not UTF-8"),
            WireErrorKind::Null => write!(f, "null where this version allows none"),
            WireErrorKind::TagSize { tag } => {
                write!(f, "tagged field {tag} does not fill its size")
            }
            WireErrorKind::OverBudget { count } => {
                write!(f, "an array of {count} elements is more than one request may cost")
            }
            WireErrorKind::TooLong { length } => {
                write!(f, "{length} bytes are too long for their length field")
            }
        }?;
        self.field.map_or(Ok(()), |field| write!(f, " (in {field})"))
    }
}

impl std::error::Error for WireError {}

/// A value that stands in messages.
pub trait Value: Sized {
    /// The fewest bytes it takes in any version.
    const SIZE_MIN: usize;

    fn read(reader: &mut Reader<'_>, form: Form) -> Result<Self, WireError>;

    fn write(&self, writer: &mut Writer, form: Form);

    /// A struct that may be null has a byte before it: −1 for null, else 1. Values with a length
    /// say null by their length instead.
    fn read_nullable(reader: &mut Reader<'_>, form: Form) -> Result<Option<Self>, WireError> {
        if reader.i8()? < 0 { Ok(None) } else { Self::read(reader, form).map(Some) }
    }

    fn write_nullable(value: Option<&Self>, writer: &mut Writer, form: Form) {
        match value {
            None => writer.i8(-1),
            Some(value) => {
                writer.i8(1);
                value.write(writer, form);
            }
        }
    }
}

impl<T: Value> Value for Option<T> {
    const SIZE_MIN: usize = 1;

    fn read(reader: &mut Reader<'_>, form: Form) -> Result<Self, WireError> {
        T::read_nullable(reader, form)
    }

    fn write(&self, writer: &mut Writer, form: Form) {
        T::write_nullable(self.as_ref(), writer, form);
    }
}

macro_rules! integer {
    ($($name:ident)*) => {$(
        impl Value for $name {
            const SIZE_MIN: usize = size_of::<Self>();

            fn read(reader: &mut Reader<'_>, _: Form) -> Result<Self, WireError> {
                reader.$name()
            }

            fn write(&self, writer: &mut Writer, _: Form) {
                writer.$name(*self);
            }
        }
    )*};
}

integer!(i8 i16 u16 i32 i64);

impl Value for bool {
    const SIZE_MIN: usize = 1;

    fn read(reader: &mut Reader<'_>, _: Form) -> Result<Self, WireError> {
        // Any byte but zero is true, as in Kafka.
        Ok(reader.i8()? != 0)
    }

    fn write(&self, writer: &mut Writer, _: Form) {
        writer.i8(i8::from(*self));
    }
}

impl Value for [u8; 16] {
    const SIZE_MIN: usize = 16;

    fn read(reader: &mut Reader<'_>, _: Form) -> Result<Self, WireError> {
        reader.array()
    }

    fn write(&self, writer: &mut Writer, _: Form) {
        writer.slice(self);
    }
}

impl Value for TopicId {
    const SIZE_MIN: usize = 16;

    fn read(reader: &mut Reader<'_>, _: Form) -> Result<Self, WireError> {
        reader.array().map(Self)
    }

    fn write(&self, writer: &mut Writer, _: Form) {
        writer.slice(&self.0);
    }
}

/// `read` and `write` of values whose length can say null.
macro_rules! through_nullable {
    () => {
        const SIZE_MIN: usize = 1;

        fn read(reader: &mut Reader<'_>, form: Form) -> Result<Self, WireError> {
            Self::read_nullable(reader, form)?.ok_or_else(|| WireErrorKind::Null.into())
        }

        fn write(&self, writer: &mut Writer, form: Form) {
            Self::write_nullable(Some(self), writer, form);
        }
    };
}

impl Value for Text {
    through_nullable!();

    fn read_nullable(reader: &mut Reader<'_>, form: Form) -> Result<Option<Self>, WireError> {
        let length = if form.flexible { reader.compact_length() } else { reader.short_length() };
        length?.map(|length| Self::try_from(reader.bytes(length)?)).transpose()
    }

    fn write_nullable(value: Option<&Self>, writer: &mut Writer, form: Form) {
        let length = value.map(|text| text.as_bytes().len());
        if form.flexible {
            writer.compact_length(length)
        } else {
            writer.short_length(length)
        }
        if let Some(text) = value {
            writer.bytes(text.as_bytes());
        }
    }
}

fn read_long_length(reader: &mut Reader<'_>, form: Form) -> Result<Option<usize>, WireError> {
    if form.flexible { reader.compact_length() } else { reader.long_length() }
}

fn write_long_length(length: Option<usize>, writer: &mut Writer, form: Form) {
    if form.flexible { writer.compact_length(length) } else { writer.long_length(length) }
}

impl Value for Bytes {
    through_nullable!();

    fn read_nullable(reader: &mut Reader<'_>, form: Form) -> Result<Option<Self>, WireError> {
        read_long_length(reader, form)?.map(|length| reader.bytes(length)).transpose()
    }

    fn write_nullable(value: Option<&Self>, writer: &mut Writer, form: Form) {
        write_long_length(value.map(Self::len), writer, form);
        if let Some(bytes) = value {
            writer.bytes(bytes);
        }
    }
}

impl Value for Records {
    through_nullable!();

    fn read_nullable(reader: &mut Reader<'_>, form: Form) -> Result<Option<Self>, WireError> {
        Ok(Bytes::read_nullable(reader, form)?.map(Self::from))
    }

    fn write_nullable(value: Option<&Self>, writer: &mut Writer, form: Form) {
        write_long_length(value.map(Self::len), writer, form);
        if let Some(records) = value {
            writer.records(records);
        }
    }
}

impl<T: Value> Value for Vec<T> {
    through_nullable!();

    fn read_nullable(reader: &mut Reader<'_>, form: Form) -> Result<Option<Self>, WireError> {
        let Some(count) = read_long_length(reader, form)? else { return Ok(None) };
        reader.admit(count, T::SIZE_MIN, size_of::<T>())?;
        let mut elements = Self::with_capacity(count);
        for _ in 0..count {
            elements.push(T::read(reader, form)?);
        }
        Ok(Some(elements))
    }

    fn write_nullable(value: Option<&Self>, writer: &mut Writer, form: Form) {
        write_long_length(value.map(Self::len), writer, form);
        for element in value.into_iter().flatten() {
            element.write(writer, form);
        }
    }
}

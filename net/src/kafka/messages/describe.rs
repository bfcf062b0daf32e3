//! The one way messages are described: a struct's fields in wire order, with the versions that
//! have them. Reading and writing follow from the description.

/// Describes structs as Kafka's schema does, one line a field:
///
/// ```text
/// Name {
///     field: Type [versions] tag 1 null [versions] = default;
/// }
/// ```
///
/// `[versions]` is a range: a version outside it neither writes nor reads the field, and a reader
/// finds the default in it. `tag` makes it a tagged field, written only when it differs from the
/// default. Only an `Option` may be null; `null` narrows the versions that allow it, and writing
/// `None` in another version writes the empty value. Tags must ascend within a struct.
macro_rules! structs {
    ($(
        $(#[$struct_meta:meta])*
        $name:ident {
            $(
                $(#[$meta:meta])*
                $field:ident: $type:ty [$versions:expr]
                $(tag $tag:literal)? $(null [$null:expr])? $(= $default:expr)?;
            )*
        }
    )*) => {$(
        $(#[$struct_meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $($(#[$meta])* pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: structs!(@default $($default)?),)* }
            }
        }

        impl $crate::wire::Value for $name {
            // In flexible versions the tag count alone; in old ones at least one small field.
            const SIZE_MIN: usize = 1;

            #[allow(unused_variables, unused_mut)]
            fn read(
                reader: &mut $crate::wire::Reader<'_>,
                form: $crate::wire::Form,
            ) -> Result<Self, $crate::wire::WireError> {
                let mut value = Self::default();
                $(structs!(
                    @read value.$field, $type, $versions, reader, form,
                    concat!(stringify!($name), ".", stringify!($field)),
                    [$($tag)?] [$($null)?]
                );)*
                if form.flexible {
                    reader.tagged_fields(|reader, tag| {
                        $(structs!(
                            @read_tagged value.$field, $versions, reader, form, tag,
                            concat!(stringify!($name), ".", stringify!($field)),
                            [$($tag)?]
                        );)*
                        Ok(false)
                    })
                    .map_err(|error| error.in_field(concat!(stringify!($name), ".tags")))?;
                }
                Ok(value)
            }

            #[allow(unused_variables, unused_mut)]
            fn write(&self, writer: &mut $crate::wire::Writer, form: $crate::wire::Form) {
                $(structs!(
                    @write self.$field, $type, $versions, writer, form, [$($tag)?] [$($null)?]
                );)*
                if form.flexible {
                    let mut tags = 0;
                    $(structs!(
                        @count self.$field, $type, $versions, form, tags,
                        [$($tag)?] [$($default)?]
                    );)*
                    writer.unsigned_varint(tags);
                    $(structs!(
                        @write_tagged self.$field, $type, $versions, writer, form,
                        [$($tag)?] [$($default)?]
                    );)*
                }
            }
        }

        #[cfg(feature = "sample")]
        impl $crate::wire::sample::Sample for $name {
            fn sample(
                source: &mut $crate::wire::sample::Source<'_>,
                form: $crate::wire::Form,
            ) -> Self {
                let mut value = Self::default();
                $(structs!(@sample value.$field, $versions, source, form, [$($null)?]);)*
                value
            }
        }
    )*};

    (@sample $value:ident.$field:ident, $versions:expr, $source:ident, $form:ident,
        [$($null:expr)?]) => {
        if ($versions).contains(&$form.version) {
            $value.$field = $crate::wire::sample::Sample::sample($source, $form);
            $(if $value.$field.is_none() && !($null).contains(&$form.version) {
                $value.$field = Some(Default::default());
            })?
        }
    };

    (@default) => { Default::default() };
    (@default $default:expr) => { $default };

    (@read $value:ident.$field:ident, $type:ty, $versions:expr, $reader:ident, $form:ident,
        $place:expr, [] [$($null:expr)?]) => {
        if ($versions).contains(&$form.version) {
            let field: Result<$type, _> = $crate::wire::Value::read($reader, $form);
            $value.$field = field.map_err(|error| error.in_field($place))?;
            $(if $value.$field.is_none() && !($null).contains(&$form.version) {
                let error = $crate::wire::WireError::from($crate::wire::WireErrorKind::Null);
                return Err(error.in_field($place));
            })?
        }
    };
    (@read $value:ident.$field:ident, $type:ty, $versions:expr, $reader:ident, $form:ident,
        $place:expr, [$tag:literal] [$($null:expr)?]) => {};

    (@read_tagged $value:ident.$field:ident, $versions:expr, $reader:ident, $form:ident,
        $found:ident, $place:expr, []) => {};
    (@read_tagged $value:ident.$field:ident, $versions:expr, $reader:ident, $form:ident,
        $found:ident, $place:expr, [$tag:literal]) => {
        if $found == $tag && ($versions).contains(&$form.version) {
            $value.$field = $crate::wire::Value::read($reader, $form)
                .map_err(|error: $crate::wire::WireError| error.in_field($place))?;
            return Ok(true);
        }
    };

    (@write $self:ident.$field:ident, $type:ty, $versions:expr, $writer:ident, $form:ident,
        [] []) => {
        if ($versions).contains(&$form.version) {
            $crate::wire::Value::write(&$self.$field, $writer, $form);
        }
    };
    (@write $self:ident.$field:ident, $type:ty, $versions:expr, $writer:ident, $form:ident,
        [] [$null:expr]) => {
        if ($versions).contains(&$form.version) {
            if $self.$field.is_none() && !($null).contains(&$form.version) {
                let empty: $type = Some(Default::default());
                $crate::wire::Value::write(&empty, $writer, $form);
            } else {
                $crate::wire::Value::write(&$self.$field, $writer, $form);
            }
        }
    };
    (@write $self:ident.$field:ident, $type:ty, $versions:expr, $writer:ident, $form:ident,
        [$tag:literal] [$($null:expr)?]) => {};

    (@count $self:ident.$field:ident, $type:ty, $versions:expr, $form:ident, $tags:ident,
        [] [$($default:expr)?]) => {};
    (@count $self:ident.$field:ident, $type:ty, $versions:expr, $form:ident, $tags:ident,
        [$tag:literal] [$($default:expr)?]) => {
        let default: $type = structs!(@default $($default)?);
        if ($versions).contains(&$form.version) && $self.$field != default {
            $tags += 1;
        }
    };

    (@write_tagged $self:ident.$field:ident, $type:ty, $versions:expr, $writer:ident,
        $form:ident, [] [$($default:expr)?]) => {};
    (@write_tagged $self:ident.$field:ident, $type:ty, $versions:expr, $writer:ident,
        $form:ident, [$tag:literal] [$($default:expr)?]) => {
        let default: $type = structs!(@default $($default)?);
        if ($versions).contains(&$form.version) && $self.$field != default {
            $writer.tagged_field($tag, |writer| {
                $crate::wire::Value::write(&$self.$field, writer, $form);
            });
        }
    };
}

pub(crate) use structs;

//! Enums whose values a format stores as one byte.
//!
//! The numbers are declared once, with the values; the function that reads a byte is generated from
//! them, so that it never misses a value added later.

/// Declares an enum whose values are one-byte numbers, and a function `from_byte`, with which the
/// declaring crate reads one back. A value is converted to a byte by `value as u8`.
///
/// ```text
/// byte_enum! {
///     /// The state of a lamp.
///     #[derive(Debug, Clone, Copy, PartialEq, Eq)]
///     pub enum Lamp {
///         /// It is dark.
///         Off = 0,
///         /// It shines.
///         On = 7,
///     }
/// }
/// ```
#[macro_export]
macro_rules! byte_enum {
    ($(#[$attribute:meta])* $vis:vis enum $name:ident {
        $($(#[$value_attribute:meta])* $value:ident = $byte:literal),+ $(,)?
    }) => {
        $(#[$attribute])*
        #[repr(u8)]
        $vis enum $name { $($(#[$value_attribute])* $value = $byte),+ }

        impl $name {
            /// The value of a byte; `None` for an unknown byte.
            pub(crate) const fn from_byte(byte: u8) -> Option<Self> {
                match byte { $($byte => Some($name::$value),)+ _ => None }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    byte_enum! {
        /// Numbers with a gap, as formats have where a value was given up.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        enum Gapped {
            First = 0,
            #[default]
            Second = 1,
            Last = 255,
        }
    }

    #[test]
    fn every_byte_is_a_value_or_unknown() {
        for byte in 0..=u8::MAX {
            let expected = match byte {
                0 => Some(Gapped::First),
                1 => Some(Gapped::Second),
                255 => Some(Gapped::Last),
                _ => None,
            };
            assert_eq!(Gapped::from_byte(byte), expected);
            assert!(expected.is_none_or(|value| value as u8 == byte));
        }
        assert_eq!(Gapped::default(), Gapped::Second);
    }
}

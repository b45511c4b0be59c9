//! Sense: why a command failed, in two formats (SPC-4, section 4.5).

/// A sense key with its code and qualifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    /// The kind of failure.
    pub key: u8,
    /// The additional sense code.
    pub code: u8,
    /// Its qualifier.
    pub qualifier: u8,
    /// Where: a byte of the command or of its parameters, or a block.
    pub place: Place,
}

/// Where a failure was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// Nowhere in particular.
    #[default]
    None,
    /// In this byte of the command.
    Command(u16),
    /// In this byte of its parameters.
    Parameter(u16),
    /// At this block, or this byte of the data compared.
    Information(u64),
}

/// Sense keys.
pub mod key {
    /// No failure.
    pub const NONE: u8 = 0;
    /// The unit cannot be used now.
    pub const NOT_READY: u8 = 2;
    /// The medium failed.
    pub const MEDIUM: u8 = 3;
    /// The command is invalid.
    pub const ILLEGAL: u8 = 5;
    /// Something happened that the initiator must know.
    pub const ATTENTION: u8 = 6;
    /// It may not be read or written.
    pub const PROTECT: u8 = 7;
    /// A copy failed.
    pub const COPY_ABORTED: u8 = 10;
    /// The command was aborted.
    pub const ABORTED: u8 = 11;
    /// The data differ.
    pub const MISCOMPARE: u8 = 14;
}

macro_rules! senses {
    ($($(#[$doc:meta])* $name:ident = $key:ident $code:literal $qualifier:literal;)*) => {
        impl Sense {
            $($(#[$doc])* pub const $name: Sense = Sense::new(key::$key, $code, $qualifier);)*
        }
    };
}

senses! {
    /// No error.
    NOTHING = NONE 0x00 0x00;
    /// The medium could not be written.
    WRITE_ERROR = MEDIUM 0x0c 0x00;
    /// The medium could not be read.
    READ_ERROR = MEDIUM 0x11 0x00;
    /// No room is left below a sparse disk.
    NO_ROOM = PROTECT 0x27 0x07;
    /// Data differ in a comparison.
    MISCOMPARED = MISCOMPARE 0x1d 0x00;
    /// A list of parameters has a wrong length.
    LIST_LENGTH = ILLEGAL 0x1a 0x00;
    /// No such command.
    INVALID_OPCODE = ILLEGAL 0x20 0x00;
    /// A block beyond the last.
    BEYOND_END = ILLEGAL 0x21 0x00;
    /// A field of the command has a wrong value.
    INVALID_FIELD = ILLEGAL 0x24 0x00;
    /// There is no such logical unit.
    NO_UNIT = ILLEGAL 0x25 0x00;
    /// A field of the parameters has a wrong value.
    INVALID_PARAMETER = ILLEGAL 0x26 0x00;
    /// A reservation that does not exist.
    INVALID_RELEASE = ILLEGAL 0x26 0x04;
    /// The initiator has no access.
    ACCESS_DENIED = PROTECT 0x20 0x02;
    /// The disk is write-protected.
    WRITE_PROTECTED = PROTECT 0x27 0x00;
    /// The owner's software protects the disk.
    SOFTWARE_PROTECTED = PROTECT 0x27 0x02;
    /// The unit has started, or was reset.
    POWER_ON = ATTENTION 0x29 0x00;
    /// The unit was reset.
    RESET = ATTENTION 0x29 0x03;
    /// The session was lost.
    NEXUS_LOSS = ATTENTION 0x29 0x07;
    /// Mode parameters were changed.
    MODE_CHANGED = ATTENTION 0x2a 0x01;
    /// Another initiator preempted the reservation.
    PREEMPTED = ATTENTION 0x2a 0x03;
    /// Another initiator released the reservation.
    RELEASED = ATTENTION 0x2a 0x04;
    /// Another initiator preempted the registration.
    UNREGISTERED = ATTENTION 0x2a 0x05;
    /// The disk's size has changed.
    CAPACITY_CHANGED = ATTENTION 0x2a 0x09;
    /// Tasks were cleared by another initiator.
    CLEARED = ATTENTION 0x2f 0x00;
    /// No more can be registered.
    REGISTRATIONS = ILLEGAL 0x55 0x04;
    /// Too few data.
    INCOMPLETE = ABORTED 0x0e 0x03;
    /// A copy's descriptor names a unit that does not exist.
    COPY_TARGET = COPY_ABORTED 0x0d 0x02;
}

impl Sense {
    /// Without a place.
    pub const fn new(key: u8, code: u8, qualifier: u8) -> Sense {
        Sense { key, code, qualifier, place: Place::None }
    }
    /// From 20 bits: key, code, qualifier.
    pub const fn from_bits(bits: u32) -> Sense {
        Sense::new((bits >> 16) as u8 & 15, (bits >> 8) as u8, bits as u8)
    }
    /// With a place.
    pub const fn at(self, place: Place) -> Sense {
        Sense { place, ..self }
    }
    /// A field pointer (SPC-4, section 4.5.2.4).
    fn pointer(self) -> Option<[u8; 3]> {
        let (flags, byte) = match self.place {
            Place::Command(byte) => (0xc0, byte),
            Place::Parameter(byte) => (0x80, byte),
            _ => return None,
        };
        let [high, low] = byte.to_be_bytes();
        Some([flags, high, low])
    }
    /// The fixed format, 18 bytes.
    pub fn fixed(self) -> Vec<u8> {
        let mut bytes = vec![0; 18];
        bytes[0] = 0x70;
        bytes[2] = self.key;
        bytes[7] = 10;
        (bytes[12], bytes[13]) = (self.code, self.qualifier);
        if let Place::Information(value) = self.place
            && let Ok(value) = u32::try_from(value)
        {
            bytes[0] |= 0x80;
            bytes[3..7].copy_from_slice(&value.to_be_bytes());
        }
        if let Some(pointer) = self.pointer() {
            bytes[15..18].copy_from_slice(&pointer);
        }
        bytes
    }
    /// The format with descriptors.
    pub fn descriptors(self) -> Vec<u8> {
        let mut bytes = vec![0x72, self.key, self.code, self.qualifier, 0, 0, 0, 0];
        if let Place::Information(value) = self.place {
            bytes.extend([0, 10, 0x80, 0]);
            bytes.extend(value.to_be_bytes());
        }
        if let Some([flags, high, low]) = self.pointer() {
            bytes.extend([2, 6, 0, 0, flags, high, low, 0]);
        }
        bytes[7] = (bytes.len() - 8) as u8;
        bytes
    }
    /// From either format.
    pub fn parse(bytes: &[u8]) -> Option<Sense> {
        let at = |at: usize| bytes.get(at).copied();
        match at(0)? & 0x7f {
            0x70 => Some(Sense::new(at(2)? & 15, at(12)?, at(13)?)),
            0x72 => Some(Sense::new(at(1)? & 15, at(2)?, at(3)?)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_carry_the_same() {
        let sense = Sense::INVALID_FIELD.at(Place::Command(300));
        let (fixed, descriptors) = (sense.fixed(), sense.descriptors());
        assert_eq!(fixed[..3], [0x70, 0, 5]);
        assert_eq!(fixed[12..18], [0x24, 0, 0, 0xc0, 1, 0x2c]);
        assert_eq!(descriptors, [0x72, 5, 0x24, 0, 0, 0, 0, 8, 2, 6, 0, 0, 0xc0, 1, 0x2c, 0]);
        assert_eq!(Sense::parse(&fixed), Some(Sense::INVALID_FIELD));
        assert_eq!(Sense::parse(&descriptors), Some(Sense::INVALID_FIELD));
        assert_eq!(Sense::parse(&[0x70]), None);
        let far = Sense::MISCOMPARED.at(Place::Information(1 << 40));
        assert_eq!(far.fixed()[0], 0x70, "it does not fit");
        assert_eq!(far.descriptors()[8..], [0, 10, 0x80, 0, 0, 0, 1, 0, 0, 0, 0, 0]);
        assert_eq!(Sense::from_bits(0x07_27_00), Sense::WRITE_PROTECTED);
    }
}

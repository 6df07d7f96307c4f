use std::fmt;

/// A number of bytes, shown to people: `831 B`, `12.3 GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

const UNITS: [(&str, u32); 5] = [("PiB", 50), ("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((unit, bits)) = UNITS.iter().find(|(_, bits)| self.0 >> bits > 0) else {
            return write!(f, "{} B", self.0);
        };
        // In whole numbers, since a float would round at the top.
        let tenths = (u128::from(self.0) * 10) >> bits;
        write!(f, "{}.{} {unit}", tenths / 10, tenths % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_a_unit() {
        let shown = [0, 1023, 1024, 1_610_612_736, u64::MAX].map(|bytes| Bytes(bytes).to_string());
        assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "1.5 GiB", "16383.9 PiB"]);
    }
}

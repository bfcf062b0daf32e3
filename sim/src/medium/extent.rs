//! A file's bytes, of which those at the end may be zeros that nobody wrote. Files are allocated
//! before they are written, and most are never full: such zeros take neither time nor room.

#[derive(Clone, Debug, Default)]
pub struct Extent {
    /// What was written. Behind it, up to `len`, are zeros.
    written: Vec<u8>,
    len: usize,
}

impl Extent {
    pub const fn len(&self) -> usize {
        self.len
    }

    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What comes to it is zeros.
    pub fn resize(&mut self, len: usize) {
        self.written.truncate(len);
        self.len = len;
    }

    /// Puts these bytes there, as far as the length allows.
    pub fn put(&mut self, from: usize, bytes: &[u8]) {
        let to = (from + bytes.len()).min(self.len);
        if from < to {
            if self.written.len() < to {
                self.written.resize(to, 0);
            }
            self.written[from..to].copy_from_slice(&bytes[..to - from]);
        }
    }

    /// Appends what stands from `from` to `to`, as far as there is something.
    pub fn copy(&self, from: usize, to: usize, out: &mut Vec<u8>) {
        let to = to.min(self.len);
        let bytes = to.saturating_sub(from);
        let end = out.len() + bytes;
        out.reserve(bytes);
        let there = self.written.len();
        out.extend_from_slice(&self.written[from.min(to).min(there)..to.min(there)]);
        out.resize(end, 0);
    }

    /// Where bytes stand that are not zero.
    pub fn marked(&self) -> Vec<usize> {
        (0..self.written.len()).filter(|at| self.written[*at] != 0).collect()
    }

    /// Changes some bits of the byte there, which is within the length.
    pub fn flip(&mut self, at: usize, bits: u8) {
        let byte = self.written.get(at).copied().unwrap_or_default();
        self.put(at, &[byte ^ bits]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The slow twin: bytes that are all there.
        #[test]
        fn an_extent_is_bytes_that_are_all_there(
            steps in vec((0..4_u8, 0..40_usize, 0..40_usize), 0..40),
        ) {
            let (mut extent, mut plain) = (Extent::default(), Vec::new());
            for (step, (kind, from, bytes)) in (1_u8..).zip(steps) {
                match kind {
                    0 => {
                        extent.resize(from);
                        plain.resize(from, 0);
                    }
                    1 => {
                        extent.put(from, &vec![step; bytes]);
                        let to = (from + bytes).min(plain.len());
                        plain[from.min(to)..to].fill(step);
                    }
                    2 if from < plain.len() => {
                        extent.flip(from, step);
                        plain[from] ^= step;
                    }
                    _ => {}
                }
                let mut copied = vec![7];
                extent.copy(from, from + bytes, &mut copied);
                let to = (from + bytes).min(plain.len());
                prop_assert_eq!(&copied[1..], &plain[from.min(to)..to]);
                prop_assert_eq!((extent.len(), extent.is_empty()), (plain.len(), plain.is_empty()));
                let marked: Vec<_> = (0..plain.len()).filter(|at| plain[*at] != 0).collect();
                prop_assert_eq!(extent.marked(), marked);
            }
        }
    }
}

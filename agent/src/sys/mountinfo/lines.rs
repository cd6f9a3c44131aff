//! Cuts a stream of bytes into lines, whatever the size of the pieces it arrives in. Memory is bounded: of a line
//! above [`MAX_LINE`] the beginning is kept, and it is counted. In a mount table only the last field can be so long, the
//! options of the superblock; which mount it is stands before that, and a mount must not be taken for missing because
//! one has many layers.

/// The longest line that is kept, without its newline. Overlay mounts with hundreds of layers make lines of
/// tens of kilobytes; one mebibyte leaves room for a hundred times that.
pub const MAX_LINE: usize = 1 << 20;

/// Puts pieces together to lines.
#[derive(Debug, Default)]
pub struct Lines {
    /// The beginning of a line whose newline has not arrived.
    pending: Vec<u8>,
    /// The pending line is too long: the rest, up to its newline, is thrown away.
    skipping: bool,
    /// Lines that were cut.
    overlong: u64,
}

impl Lines {
    /// Takes the next piece and hands every line that it completes to `sink`, without the newline.
    pub fn feed(&mut self, piece: &[u8], mut sink: impl FnMut(&[u8])) {
        let mut rest = piece;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, after) = rest.split_at(end);
            if self.pending.is_empty() && !self.skipping && line.len() <= MAX_LINE {
                sink(line);
            } else {
                self.append(line);
                self.complete(&mut sink);
            }
            rest = after.get(1..).unwrap_or_default();
        }
        self.append(rest);
    }

    /// Ends the stream: a last line without a newline is a line. Returns how many were too long.
    pub fn finish(mut self, mut sink: impl FnMut(&[u8])) -> u64 {
        if self.skipping || !self.pending.is_empty() {
            self.complete(&mut sink);
        }
        self.overlong
    }

    fn append(&mut self, bytes: &[u8]) {
        if self.skipping {
            return;
        }
        let room = MAX_LINE.saturating_sub(self.pending.len());
        let (kept, cut) = bytes.split_at(room.min(bytes.len()));
        self.skipping = !cut.is_empty();
        self.pending.extend_from_slice(kept);
    }

    fn complete(&mut self, sink: &mut impl FnMut(&[u8])) {
        self.overlong += u64::from(self.skipping);
        sink(&self.pending);
        self.skipping = false;
        self.pending.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cut(pieces: &[&[u8]]) -> (Vec<Vec<u8>>, u64) {
        let mut lines = Lines::default();
        let mut seen = Vec::new();
        for piece in pieces {
            lines.feed(piece, |line| seen.push(line.to_vec()));
        }
        let overlong = lines.finish(|line| seen.push(line.to_vec()));
        (seen, overlong)
    }

    #[test]
    fn the_last_line_needs_no_newline() {
        assert_eq!(cut(&[b"a\nb"]), (vec![b"a".to_vec(), b"b".to_vec()], 0));
        assert_eq!(cut(&[b"a\n", b"b\n"]), (vec![b"a".to_vec(), b"b".to_vec()], 0));
        assert_eq!(cut(&[b""]), (vec![], 0));
    }

    #[test]
    fn a_line_of_the_maximum_is_whole_and_one_byte_more_is_cut() {
        let longest = vec![b'x'; MAX_LINE];
        let both = vec![longest.clone(), b"b".to_vec()];
        assert_eq!(cut(&[&longest, b"\n", b"b\n"]), (both.clone(), 0));
        assert_eq!(cut(&[&longest, b"x\nb\n"]), (both.clone(), 1));
        assert_eq!(cut(&[&longest, b"x", b"y\nb\n"]), (both.clone(), 1));
        let whole = [longest.as_slice(), b"x\nb"].concat();
        assert_eq!(cut(&[&whole]), (both, 1));
        assert_eq!(cut(&[b"b\n", &longest, b"x"]), (vec![b"b".to_vec(), longest], 1));
    }

    proptest! {
        #[test]
        fn the_size_of_the_pieces_does_not_matter(text in "[ab\n]{0,60}", size in 1_usize..9) {
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            prop_assert_eq!(cut(&pieces), cut(&[text.as_bytes()]));
        }
    }
}

//! Position-coded bytes: what stands at a position of a stream follows from the position alone, and no two words of
//! a stream are alike. So a byte that is missing, doubled or moved shows at once.

const WORD: u64 = 8;

/// Fills `buf` with the bytes from `position` on.
pub fn fill(buf: &mut [u8], position: u64) {
    for_each_run(buf.len(), position, |range, word| {
        buf[range].copy_from_slice(word);
    });
}

/// The `len` bytes from `position` on.
pub fn bytes(position: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fill(&mut bytes, position);
    bytes
}

/// Fails, with the place, unless `buf` holds the bytes from `position` on.
pub fn check(buf: &[u8], position: u64) {
    for_each_run(buf.len(), position, |range, word| {
        let start = range.start;
        assert!(
            &buf[range] == word,
            "wrong bytes at stream position {}",
            position + start as u64
        );
    });
}

/// The finaliser of splitmix64: a bijection, so different positions have different words.
pub fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// Cuts `len` bytes from `position` on into pieces of at most one word each.
fn for_each_run(len: usize, position: u64, mut run: impl FnMut(std::ops::Range<usize>, &[u8])) {
    let mut done = 0;
    while done < len {
        let at = position + done as u64;
        let word = mix(at / WORD).to_le_bytes();
        let skip = (at % WORD) as usize;
        let take = (word.len() - skip).min(len - done);
        run(done..done + take, &word[skip..skip + take]);
        done += take;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_do_not_change_the_bytes() {
        let whole = bytes(3, 100);
        for cut in 0..100 {
            check(&whole[..cut], 3);
            check(&whole[cut..], 3 + cut as u64);
        }
    }

    #[test]
    fn moved_bytes_are_noticed() {
        let moved = bytes(8, 16);
        assert!(std::panic::catch_unwind(|| check(&moved, 16)).is_err());
        assert!(std::panic::catch_unwind(|| check(&moved, 7)).is_err());
    }
}

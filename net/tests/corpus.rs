//! The fuzz targets over their corpus, in each ordinary test run: what fuzzing once found stays
//! found. Each entry is run as it is, and in a few hundred damaged forms.

// They are public for the fuzz crate, whose files they are.
#[allow(unreachable_pub)]
#[path = "../../fuzz/src/targets.rs"]
mod targets;

use std::path::Path;

/// The bytes that steer a target lie in front: damage falls there as often as behind.
fn damaged(bytes: &[u8], round: u32) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let mut state = round.wrapping_mul(0x9e37_79b9) | 1;
    let mut draw = |below: usize| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as usize % below.max(1)
    };
    for _ in 0..=draw(3) {
        let reach = if draw(2) == 0 { 8 } else { bytes.len() };
        let place = draw(reach.min(bytes.len()));
        match draw(4) {
            0 => bytes.truncate(place),
            1 => bytes.insert(place, draw(256) as u8),
            _ if bytes.is_empty() => {}
            2 => bytes[place] = [0, 1, 0x7f, 0x80, 0xff][draw(5)],
            _ => bytes[place] ^= 1 << draw(8),
        }
    }
    bytes
}

fn replay(name: &str, target: fn(&[u8])) {
    target(&[]);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(name);
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{} cannot be listed: {error}", folder.display()))
        .map(|entry| entry.expect("a folder can be listed").path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    for path in files {
        let bytes = std::fs::read(&path).expect("the corpus can be read");
        target(&bytes);
        for round in 0..300 {
            target(&damaged(&bytes, round));
        }
    }
}

macro_rules! replayed {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            replay(stringify!($name), targets::$name);
        }
    )*};
}

replayed!(messages frames batch compression segment journal state);

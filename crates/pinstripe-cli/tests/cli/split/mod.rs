//! `split`, `join`, `verify`, `inspect` and `cat --range` as their users meet them.

mod damage;
mod refused;
mod resume;
mod round;
mod sources;

use std::fs;
use std::path::PathBuf;

use pinstripe_split::Fake;

use crate::stand::{Ran, Stand};

/// Every way to lay a source over outputs, and how many outputs.
const LAYOUTS: [(&str, usize); 6] = [
    ("--layout queue", 2),
    ("--layout ranges --codec lz4", 3),
    ("--layout ranges --codec raw", 3),
    ("--layout stripes --strip-size 4K", 2),
    ("--parity 1 --strip-size 4K", 3),
    ("--parity 2 --strip-size 4K", 5),
];

/// Bytes with some zeros and some words in them.
fn content(bytes: u64) -> Vec<u8> {
    let spec = format!("fake:{bytes},block=4K,zero=30%,entropy=0.6,seed={bytes}");
    let mut content = vec![0; bytes as usize];
    Fake::new(spec.parse().unwrap()).unwrap().fill(0, &mut content);
    content
}

impl Stand {
    /// A file to be split; returns its bytes.
    fn source(&self, bytes: u64) -> Vec<u8> {
        let content = content(bytes);
        fs::write(self.path("src"), &content).unwrap();
        content
    }

    /// Splits `src` over `o0`, `o1`, ...
    #[track_caller]
    fn split(&self, options: &str, outputs: usize) {
        let ran = self.run(&format!("split src {} {options} -q", names(outputs)));
        assert_eq!(ran.code, 0, "{options}: {}", ran.err);
    }

    /// Joins outputs into a new file and returns its bytes, if there is one.
    fn join(&self, line: &str) -> (Ran, Option<Vec<u8>>) {
        let _ = fs::remove_file(self.path("joined"));
        let ran = self.run(&format!("join {line} -o joined --json"));
        assert!(!self.path("joined.unfinished").exists(), "{line}: half a file is left");
        (ran, fs::read(self.path("joined")).ok())
    }

    /// The outputs give back what was split, and all of them are sound.
    #[track_caller]
    fn assert_whole(&self, outputs: usize, content: &[u8]) {
        let (ran, joined) = self.join(&names(outputs));
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(joined.unwrap() == content);
        let verified = self.run(&format!("verify {} --json", names(outputs)));
        assert_eq!(verified.code, 0, "{}", verified.err);
        for summary in [ran.summary(), verified.summary()] {
            assert_eq!(summary["blake3"], blake3::hash(content).to_hex().as_str());
            assert_eq!(summary["warnings"], 0);
        }
    }

    fn output(&self, number: usize) -> PathBuf {
        self.path(&format!("o{number}"))
    }
}

/// `o0 o1 o2`
fn names(outputs: usize) -> String {
    (0..outputs).map(|number| format!("o{number} ")).collect()
}

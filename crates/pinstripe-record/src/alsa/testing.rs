//! ALSA devices for tests, with a configuration of their own.
//!
//! libasound reads its configuration only once, as the environment says, so each test runs itself
//! again in a process with another environment.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use pinstripe_base::monitor::Monitor;

use super::library::AlsaLibrary;
use crate::input::parse_input;
use crate::recorder::tests::{on_disk, plan};
use crate::recorder::{TakePlan, record};
use crate::take::{DiskFolder, Manifest};

/// The environment variable that passes the directory of the configuration to the process in which
/// a test runs itself again.
const DIRECTORY: &str = "PINSTRIPE_TEST_ALSA";
/// The configuration file of ALSA, which every system with the library has.
const SYSTEM: &str = "/usr/share/alsa/alsa.conf";

/// A configuration, and a directory for the files of a test.
pub struct AlsaConfig {
    dir: PathBuf,
}

/// Runs `body` in a process with a configuration of its own. `test` is the path of the test within
/// this crate.
pub fn with_config(test: &str, body: fn(&AlsaConfig)) {
    if let Some(dir) = std::env::var_os(DIRECTORY) {
        return body(&AlsaConfig { dir: dir.into() });
    }
    if AlsaLibrary::get().is_err() || !Path::new(SYSTEM).exists() {
        return pinstripe_testing::not_installed(test, "libasound with its configuration");
    }
    let dir = tempfile::tempdir().unwrap();
    let own = dir.path().join("asound.conf");
    std::fs::write(&own, "").unwrap();
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--include-ignored", "--nocapture"])
        .env("ALSA_CONFIG_PATH", format!("{SYSTEM}:{}", own.display()))
        .env(DIRECTORY, dir.path())
        .status();
    assert!(status.unwrap().success());
}

impl AlsaConfig {
    /// Replaces the configuration by a new file, which the library reads when it opens the next
    /// device. The library would not notice a change of the same file within a second.
    pub fn write(&self, text: &str) {
        std::fs::write(self.dir.join("new.conf"), text).unwrap();
        std::fs::rename(self.dir.join("new.conf"), self.dir.join("asound.conf")).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Configures a device that delivers noise from a file, in the ALSA format with this name;
    /// returns the noise.
    pub fn file_device(&self, device: &str, format: &str, bytes: usize) -> Vec<u8> {
        let samples: Vec<u8> = (1..=bytes as u64)
            .map(|it| (it.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 37) as u8)
            .collect();
        let path = self.path(&format!("{format}.in"));
        std::fs::write(&path, &samples).unwrap();
        self.write(&format!(
            "pcm.{device} {{ type file slave.pcm null file /dev/null infile {} format raw }}\n",
            path.display()
        ));
        samples
    }

    /// Records this number of frames of a 48 kHz input as a raw take.
    pub fn record(&self, take: &str, input: &str, frames: u64) -> Arc<Monitor> {
        let (stop, monitor) =
            (pinstripe_base::sync::Stop::new().unwrap(), Arc::new(Monitor::default()));
        let folders = on_disk(&[&self.dir], take, None);
        let made = || Ok(folders.clone());
        let inputs = vec![parse_input(input).unwrap().open(false).unwrap()];
        let plan = TakePlan {
            kind: crate::header::FileKind::Raw,
            most: Some(Duration::from_nanos(frames * 1_000_000_000 / 48_000 + 1)),
            ..plan(take)
        };
        record(&plan, inputs, &made, (&stop, &monitor), &mut |_, _| {}).unwrap();
        monitor
    }

    /// The payload of each stream of a raw take.
    pub fn payloads(&self, take: &str) -> Vec<Vec<u8>> {
        let path = self.path(take);
        let manifest = Manifest::load(&DiskFolder::open(&path).unwrap()).unwrap();
        manifest.pieces.iter().map(|it| std::fs::read(path.join(&it.file)).unwrap()).collect()
    }
}

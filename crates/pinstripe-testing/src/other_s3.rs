//! Other S3 servers on the loopback, which differ from versitygw in what they answer.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::s3::{BUCKET, KEY_ID, KEY_SECRET};

/// Attempts to connect between the start of a server and its first answer.
const LOOKS: usize = 600;
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// A program that serves S3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum S3Program {
    /// A server in memory, in Python (PyPI).
    Moto,
    /// A server over a directory, in Go.
    Minio,
}

impl S3Program {
    /// All of them.
    pub const ALL: [S3Program; 2] = [S3Program::Moto, S3Program::Minio];

    /// The name of the project.
    pub fn name(self) -> &'static str {
        match self {
            S3Program::Moto => "moto",
            S3Program::Minio => "minio",
        }
    }

    /// Whether one of several concurrent creations of an object succeeds in every case: moto looks
    /// for the object and stores it in two steps.
    pub fn has_one_winner(self) -> bool {
        self != S3Program::Moto
    }

    /// The name of the executable file.
    fn file(self) -> &'static str {
        match self {
            S3Program::Moto => "moto_server",
            S3Program::Minio => "minio",
        }
    }

    /// The executable file, if `cargo xtask test --all` installed it.
    fn path(self) -> Option<PathBuf> {
        // The test is TARGET/debug/deps/TEST.
        let test = std::env::current_exe().ok()?;
        let file = test.ancestors().nth(3)?.join("xtask/servers/bin").join(self.file());
        file.is_file().then_some(file)
    }

    fn command(self, file: &Path, port: u16, dir: &Path) -> Command {
        let mut command = Command::new(file);
        match self {
            S3Program::Moto => command.args(["-H", "127.0.0.1", "-p", &port.to_string()]),
            S3Program::Minio => command
                .args(["server", "--quiet", "--address", &format!("127.0.0.1:{port}")])
                .arg(dir.join("data"))
                .env("MINIO_ROOT_USER", KEY_ID)
                .env("MINIO_ROOT_PASSWORD", KEY_SECRET)
                .env("MINIO_BROWSER", "off")
                .env("MINIO_UPDATE", "off")
                .env("HOME", dir),
        };
        command
    }
}

/// A server, until it is dropped.
pub struct OtherS3Server {
    /// The program that runs.
    pub program: S3Program,
    port: u16,
    child: Child,
}

impl OtherS3Server {
    /// Starts a server that keeps its objects below a directory or in memory, and creates the
    /// bucket; `None` if the program is missing, which is reported as a skipped test.
    pub fn start(test: &str, program: S3Program, dir: &Path) -> Option<OtherS3Server> {
        let Some(file) = program.path() else {
            crate::not_installed(&format!("{test} on {}", program.name()), program.name());
            return None;
        };
        // No other program takes the port in the moment between.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let mut command = program.command(&file, port, dir);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut server = OtherS3Server { program, port, child };
        server.make_bucket();
        Some(server)
    }

    /// Waits until the server creates the bucket: only an answer shows that it is ready.
    fn make_bucket(&mut self) {
        let url = format!("http://127.0.0.1:{}/{BUCKET}", self.port);
        for _ in 0..LOOKS {
            let is_open = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok();
            let made = || {
                Command::new("curl")
                    .args(["-sf", "-m", "20", "-X", "PUT", "-o", "/dev/null"])
                    .args(["--aws-sigv4", "aws:amz:us-east-1:s3"])
                    .args(["-u", &format!("{KEY_ID}:{KEY_SECRET}")])
                    .args(["-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD", &url])
                    .status()
                    .unwrap()
            };
            if is_open && made().success() {
                return;
            }
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "{} ended at once", self.program.name());
            std::thread::sleep(BETWEEN_LOOKS);
        }
        panic!("{} creates no bucket", self.program.name());
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A place below a prefix, through this port: the server's own, or that of a proxy.
    pub fn place_at(&self, port: u16, prefix: &str) -> String {
        format!("s3+http://127.0.0.1:{port}/{BUCKET}/{prefix}")
    }
}

impl Drop for OtherS3Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

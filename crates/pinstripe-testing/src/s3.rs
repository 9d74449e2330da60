//! A real S3 server on the loopback, for tests that need one: versitygw over a directory.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The name of the bucket that every server has.
pub const BUCKET: &str = "pinstripe";
/// The key of the server's user, which opens nothing but a server of a test.
pub const KEY_ID: &str = "pinstripetest";
/// The secret that belongs to [`KEY_ID`].
pub const KEY_SECRET: &str = "onlyForTestsOnTheLoopback";

/// Looks between the start of a server and its first answer.
const LOOKS: usize = 1000;
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// A server, until it is dropped.
pub struct S3Server {
    program: PathBuf,
    dir: PathBuf,
    port: u16,
    child: Option<Child>,
}

impl S3Server {
    /// Starts a server that keeps its objects below a directory; `None` where the program is
    /// missing, which is said as a skipped test.
    pub fn start(test: &str, dir: &Path) -> Option<S3Server> {
        let Some(program) = program() else {
            crate::not_installed(test, "versitygw");
            return None;
        };
        fs::create_dir_all(dir.join("data").join(BUCKET)).unwrap();
        // Versions are kept only when the bucket is asked for it.
        fs::create_dir_all(dir.join("versions")).unwrap();
        // No other program takes the port in the moment between.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let mut server = S3Server { program, dir: dir.to_owned(), port, child: None };
        server.restart(&[]);
        Some(server)
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A place in it, below a prefix, as another port shows it: its own, or that of a proxy.
    pub fn place_at(&self, port: u16, prefix: &str) -> String {
        format!("s3+http://127.0.0.1:{port}/{BUCKET}/{prefix}")
    }

    /// The file of an object.
    pub fn file(&self, key: &str) -> PathBuf {
        self.dir.join("data").join(BUCKET).join(key)
    }

    /// Ends the server; its objects stay.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts the server again on the same port, with more options.
    pub fn restart(&mut self, options: &[&str]) {
        self.stop();
        let mut command = Command::new(&self.program);
        command
            .args(["--port", &format!("127.0.0.1:{}", self.port), "--quiet", "--keep-alive"])
            .args(options)
            .arg("posix");
        // A server that is killed between the two files of an object refuses to create that key ever
        // after, and has nothing to read there: only attributes appear with the object.
        if !has_attributes(&self.dir) {
            fs::create_dir_all(self.dir.join("sidecar")).unwrap();
            command.arg("--sidecar").arg(self.dir.join("sidecar"));
        }
        let child = command
            .arg("--versioning-dir")
            .args([self.dir.join("versions"), self.dir.join("data")])
            .env("ROOT_ACCESS_KEY", KEY_ID)
            .env("ROOT_SECRET_KEY", KEY_SECRET)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.child = Some(child);
        // Nothing but a connection says that it listens.
        for _ in 0..LOOKS {
            if TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok() {
                return;
            }
            let child = self.child.as_mut().unwrap();
            assert!(child.try_wait().unwrap().is_none(), "versitygw ended at once");
            std::thread::sleep(BETWEEN_LOOKS);
        }
        panic!("versitygw does not listen");
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Whether files of a directory can have attributes of users.
fn has_attributes(dir: &Path) -> bool {
    rustix::fs::setxattr(dir, "user.pinstripe-test", b"1", rustix::fs::XattrFlags::empty()).is_ok()
}

/// The program, on the path or where Go installs what it builds.
fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|dir| dir.join("versitygw"));
    let built = || {
        let asked = Command::new("go").args(["env", "GOPATH"]).output().ok()?;
        let dir = String::from_utf8(asked.stdout).ok()?;
        Some(Path::new(dir.trim()).join("bin/versitygw"))
    };
    on_path.chain(built()).find(|program| program.is_file())
}

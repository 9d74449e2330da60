//! Installs Debian packages and S3 servers that tests use.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::workspace::works;

/// Installs missing packages if possible; reports those that are still missing. Returns the reason
/// why a missing package could not be installed.
pub fn install(packages: &[&str]) -> &'static str {
    let missing = || packages.iter().copied().filter(|it| !is_installed(it)).collect::<Vec<_>>();
    let wanted = missing();
    let is_root = is_root();
    let can_install = is_root && works(Command::new("apt-get").arg("--version"));
    if !wanted.is_empty() && can_install {
        println!("installing {}", wanted.join(", "));
        let install = [&["install", "--yes", "--no-install-recommends"], &wanted[..]].concat();
        if !apt(&install) && apt(&["update"]) {
            apt(&install);
        }
    }
    let why = match (is_root, can_install) {
        (_, true) => "apt-get could not install it",
        (true, false) => "there is no apt-get here to install it",
        (false, false) => "not root, so it was not installed",
    };
    for package in missing() {
        println!("package {package} is missing: {why}");
    }
    why
}

/// The S3 server of the tests, as a Go module.
const S3_SERVER: &str = "github.com/versity/versitygw/cmd/versitygw@v1.8.0";

/// Builds the S3 server of the tests if it is missing and a Go compiler is installed. Debian's
/// compiler is too old, so it fetches the version that the module requires.
pub fn install_s3_server() {
    let is_there = || {
        let on_path = works(Command::new("versitygw").arg("--version"));
        let asked = Command::new("go").args(["env", "GOPATH"]).output();
        let built = asked.ok().and_then(|it| String::from_utf8(it.stdout).ok());
        on_path || built.is_some_and(|it| Path::new(it.trim()).join("bin/versitygw").is_file())
    };
    if is_there() {
        return;
    }
    println!("installing versitygw");
    let mut install = Command::new("go");
    install.args(["install", S3_SERVER]).env("GOFLAGS", "-ldflags=-s");
    if !works(&mut install) && install_go() {
        works(&mut install);
    }
    if !is_there() {
        println!("versitygw is missing: 'go install {S3_SERVER}' did not build it");
    }
}

/// S3 servers that only tests of `--all` start, with their file names: a Python package and a Go
/// module.
const MOTO: [&str; 2] = ["moto_server", "moto[server]==5.2.5"];
const MINIO: [&str; 2] = ["minio", "github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c"];

/// Installs these servers in a directory, if they are missing there. The directory is a virtual
/// environment of Python, and its `bin` also receives the Go program, whose build takes minutes.
pub fn install_other_s3_servers(folder: &Path) {
    let [moto, minio] = [MOTO, MINIO].map(|[name, _]| folder.join("bin").join(name));
    if !moto.is_file() {
        println!("installing moto");
        let mut venv = Command::new("python3");
        venv.args(["-m", "venv"]).arg(folder);
        if !works(&mut venv) {
            install(&["python3-venv"]);
            works(&mut venv);
        }
        works(Command::new(folder.join("bin/pip")).args(["install", "--quiet", MOTO[1]]));
    }
    if !minio.is_file() {
        println!("installing minio");
        let mut build = Command::new("go");
        build.args(["install", MINIO[1]]).env("GOFLAGS", "-ldflags=-s");
        build.env("GOBIN", folder.join("bin"));
        if !works(&mut build) && install_go() {
            works(&mut build);
        }
    }
    for (file, [name, source]) in [(moto, MOTO), (minio, MINIO)] {
        if !file.is_file() {
            println!("{name} is missing: {source} could not be installed");
        }
    }
}

fn install_go() -> bool {
    !works(Command::new("go").arg("version")) && is_root() && {
        install(&["golang-go"]);
        works(Command::new("go").arg("version"))
    }
}

fn apt(args: &[&str]) -> bool {
    let mut command = Command::new("apt-get");
    works(command.env("DEBIAN_FRONTEND", "noninteractive").args(args))
}

fn is_installed(package: &str) -> bool {
    let mut query = Command::new("dpkg-query");
    let output = query.args(["--show", "--showformat=${db:Status-Status}", package]).output();
    output.is_ok_and(|output| output.stdout == b"installed")
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|entry| {
        use std::os::unix::fs::MetadataExt;
        entry.uid() == 0
    })
}

//! Arrays are watched from outside; programs that are to be told may hang.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::serving::{Served, good, has, with_pool};
use crate::stand::Stand;

/// `array monitor` at work; ended at the latest when this is dropped.
struct Monitor {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Monitor {
    fn start(stand: &Stand, options: &str) -> Self {
        let mut command = stand.command(&format!("array monitor --json --delay 50ms {options}"));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Monitor { child, lines }
    }

    fn event(&mut self) -> Value {
        serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap()
    }

    /// Passes over events until one of an array is of this kind.
    fn until(&mut self, what: &str) -> Value {
        std::iter::from_fn(|| Some(self.event())).find(|it| it["what"] == what).unwrap()
    }

    fn ended(mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn script(stand: &Stand, name: &str, text: &str) {
    fs::write(stand.path(name), format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(stand.path(name), fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn the_life_of_an_array_is_told_across_servers() {
    let stand = with_pool(16 << 20);
    script(&stand, "told", "echo \"$@\" >> told.log");
    let served = Served::by_nbd(&stand);
    let mut monitor = Monitor::start(&stand, "--program {}/told");
    assert_eq!(monitor.event()["arrays"][0], "pool");
    good(&stand, "array manage pool --fail b");
    let failed = monitor.until("Fail");
    assert_eq!((&failed["name"], &failed["slot"]), (&"pool".into(), &1.into()));
    assert_eq!(monitor.until("DegradedArray")["count"], 1);
    served.signal(Signal::KILL);
    served.ended();
    monitor.until("NobodyServes");
    let served = Served::by_nbd(&stand);
    monitor.until("ServedAgain");
    good(&stand, "array manage pool --remove b --add d");
    monitor.until("SpareActive");
    good(&stand, "array create new -l 1 -n 2 --size 16M --quiet e f");
    assert_eq!(monitor.until("NewArray")["name"], "new");
    assert_eq!(monitor.until("NobodyServes")["name"], "new");
    good(&stand, "array forget new");
    assert_eq!(monitor.until("DeviceDisappeared")["name"], "new");
    good(&stand, "array stop pool");
    assert_eq!(served.ended(), 0);
    monitor.until("NobodyServes");
    assert_eq!(monitor.ended(), Some(0));
    let told = fs::read_to_string(stand.path("told.log")).unwrap();
    let device = stand.path("b").canonicalize().unwrap();
    assert!(told.contains(&format!("Fail pool {}\n", device.display())), "{told}");
    assert!(told.contains("DeviceDisappeared new\n"), "{told}");
}

#[test]
fn one_look_names_what_is_wrong() {
    let stand = with_pool(16 << 20);
    let ran = stand.run("array monitor --oneshot --json --test");
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(ran.events_of("monitoring").len(), 1);
    let what = |ran: &crate::stand::Ran| -> Vec<String> {
        let events = ran.events_of("array_event");
        events.iter().map(|it| it["what"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(what(&ran), ["TestMessage", "NewArray", "NobodyServes"]);
    assert_eq!(ran.summary()["events"], 3);
    fs::remove_file(stand.path("a")).unwrap();
    let ran = stand.run("array monitor pool -1 --json");
    assert_eq!(what(&ran), ["NewArray", "DegradedArray", "NobodyServes"]);
    fs::remove_file(stand.path("b")).unwrap();
    fs::remove_file(stand.path("c")).unwrap();
    assert_eq!(what(&stand.run("array monitor --scan -1 --json")), ["DeviceDisappeared"]);
    assert!(stand.run("array monitor -1").out.contains(" DeviceDisappeared pool"));
    for (line, code) in [
        ("array monitor none", 11),
        ("array monitor pool --scan", 2),
        ("array monitor --delay soon", 2),
    ] {
        assert_eq!(stand.run(line).code, code, "{line}");
    }
}

#[test]
fn mail_goes_through_the_mail_command() {
    let stand = with_pool(16 << 20);
    script(&stand, "mailer", "test \"$1\" = -t && cat >> mail");
    let line = "array monitor -1 -t --mail root@host --mail-command {}/mailer";
    good(&stand, line);
    let mail = fs::read_to_string(stand.path("mail")).unwrap();
    assert!(mail.contains("To: root@host\nSubject: TestMessage event on array pool\n"), "{mail}");
    assert!(mail.contains("NobodyServes") && !mail.contains("NewArray"), "{mail}");
    let ran = stand.run("array monitor -1 -t --mail root@host --mail-command {}/none");
    assert_eq!(ran.code, 3, "one look is to tell whether its mail went: {}", ran.err);
    assert!(ran.err.contains("none: cannot run"), "{}", ran.err);
}

#[test]
fn a_program_that_hangs_is_killed_and_the_monitor_goes_on() {
    let stand = with_pool(16 << 20);
    script(&stand, "hangs", "echo $$ >> pids; sleep 1000");
    let ran = stand.run("array monitor -1 -t --program {}/hangs --deadline 100ms");
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.err.contains("the program did not end within 0.1 s and was killed"), "{}", ran.err);
    assert!(ran.out.contains("TestMessage") && ran.out.contains("NobodyServes"), "{}", ran.out);
    let pids = fs::read_to_string(stand.path("pids")).unwrap();
    for pid in pids.lines() {
        assert!(!stand.path("/proc").join(pid).exists(), "{pid} is still there");
    }
}

/// What a client sent, until the end of its JSON.
fn request(listener: &TcpListener) -> (String, std::net::TcpStream) {
    let (mut client, _) = listener.accept().unwrap();
    let (mut text, mut byte) = (Vec::new(), [0]);
    while !text.ends_with(b"}") && client.read(&mut byte).unwrap() == 1 {
        text.push(byte[0]);
    }
    (String::from_utf8(text).unwrap(), client)
}

#[test]
fn a_webhook_gets_json_and_may_be_silent() {
    const TEST: &str = "a_webhook_gets_json_and_may_be_silent";
    if !has("curl") {
        return pinstripe_testing::not_installed(TEST, "curl");
    }
    let stand = with_pool(16 << 20);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/arrays", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let mut texts = Vec::new();
        for _ in 0..3 {
            let (text, mut client) = request(&listener);
            client.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
            texts.push(text);
        }
        // The fourth and later ones get no answer.
        (texts, listener)
    });
    good(&stand, &format!("array monitor -1 -t --webhook {url}"));
    let (texts, listener) = server.join().unwrap();
    assert!(texts[0].starts_with("POST /arrays HTTP/1.1\r\n"), "{}", texts[0]);
    assert!(texts[0].to_lowercase().contains("content-type: application/json"), "{}", texts[0]);
    let body: Value = serde_json::from_str(texts[0].split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!((&body["what"], &body["name"]), (&"TestMessage".into(), &"pool".into()));
    let ran = stand.run(&format!("array monitor -1 --webhook {url} --deadline 200ms"));
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.err.contains("did not end within 0.2 s"), "{}", ran.err);
    drop(listener);
    let ran = stand.run(&format!("array monitor -1 --webhook {url}"));
    assert!(ran.err.contains("failed (exit status: 7)"), "{}", ran.err);
}

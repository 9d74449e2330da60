//! Chromium without a screen and without a network, driven over a pipe by the DevTools protocol:
//! one process and one tab for all pages of a test, since starting a browser takes longer than
//! showing a page.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// Ends a message of the protocol, in both directions.
const END: u8 = 0;

/// A running browser with a directory of its own.
pub struct Browser {
    process: Child,
    /// `None` while the browser ends.
    requests: Option<ChildStdin>,
    responses: BufReader<ChildStdout>,
    /// The tab.
    session: Option<String>,
    calls: u64,
    dir: tempfile::TempDir,
}

impl Browser {
    /// A browser; none where no Chromium is installed.
    pub fn start() -> Option<Self> {
        let works = |program: &&str| {
            let mut command = Command::new(program);
            let command = command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        let program = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(works)?;
        let dir = tempfile::tempdir().unwrap();
        // Chromium reads requests from descriptor 3 and writes responses to 4.
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null", "sh", program]);
        command.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"]);
        command.args(["--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe"]);
        // Requests to this machine do not use the proxy; all others fail.
        command.args(["--proxy-server=127.0.0.1:9", "--ignore-certificate-errors"]);
        command.arg(format!("--user-data-dir={}", dir.path().join("profile").display()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().unwrap();
        let requests = process.stdin.take();
        let responses = BufReader::new(process.stdout.take().unwrap());
        let mut browser = Browser { process, requests, responses, session: None, calls: 0, dir };
        let tab = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": tab["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", &attach);
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        assert!(browser.session.is_some(), "{attached}");
        Some(browser)
    }

    /// A file in the browser's directory.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// Lays pages out for a screen of a size in pixels, and a user who prefers a colour scheme,
    /// `light` or `dark`.
    pub fn emulate(&mut self, (width, height): (u32, u32), scheme: &str) {
        let screen =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", &screen);
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.call("Emulation.setEmulatedMedia", &json!({ "features": [feature] }));
    }

    /// Opens a file and waits until it is loaded.
    pub fn open(&mut self, page: &Path) {
        self.open_url(&format!("file://{}", page.display()));
    }

    /// Opens a URL and waits until it is loaded.
    pub fn open_url(&mut self, url: &str) {
        let opened = self.call("Page.navigate", &json!({ "url": url }));
        assert!(opened.get("errorText").is_none(), "{opened}");
        self.evaluate(
            "new Promise(done => document.readyState === 'complete' ? done() : addEventListener('load', done))",
        );
    }

    /// The value of an expression in the page.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let what = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let found = self.call("Runtime.evaluate", &what);
        assert!(found.get("exceptionDetails").is_none(), "{found}");
        found["result"]["value"].clone()
    }

    /// A PNG of the screen.
    pub fn screenshot(&mut self) -> Vec<u8> {
        let found = self.call("Page.captureScreenshot", &json!({ "format": "png" }));
        decoded(found["data"].as_str().unwrap())
    }

    /// The page as a PDF, on the sheets that the page asks for.
    pub fn pdf(&mut self) -> Vec<u8> {
        let found = self.call(
            "Page.printToPDF",
            &json!({ "printBackground": true, "preferCSSPageSize": true }),
        );
        decoded(found["data"].as_str().unwrap())
    }

    /// Calls a method and waits for its result; events in between are dropped.
    fn call(&mut self, method: &str, params: &Value) -> Value {
        self.send(method, params);
        loop {
            let mut message = Vec::new();
            self.responses.read_until(END, &mut message).unwrap();
            assert_eq!(message.pop(), Some(END), "the browser ended during {method}");
            let mut message: Value = serde_json::from_slice(&message).unwrap();
            if message["id"] == self.calls {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].take();
            }
        }
    }

    fn send(&mut self, method: &str, params: &Value) {
        self.calls += 1;
        let mut message = json!({ "id": self.calls, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        let requests = self.requests.as_mut().expect("taken only when the browser is dropped");
        requests.write_all(message.to_string().as_bytes()).unwrap();
        requests.write_all(&[END]).unwrap();
        requests.flush().unwrap();
    }
}

impl Drop for Browser {
    /// Chromium ends when the pipe is closed.
    fn drop(&mut self) {
        self.requests = None;
        let _ = self.process.wait();
    }
}

/// The bytes that a text in base64 stands for.
fn decoded(text: &str) -> Vec<u8> {
    let value = |digit: u8| match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<u8> = text.bytes().filter(|it| *it != b'=').map(value).collect();
    let bytes = digits.chunks(4).flat_map(|four| {
        let bits = four.iter().fold(0, |bits, digit| bits << 6 | u32::from(*digit));
        let bits = bits << (6 * (4 - four.len()) as u32 + 8);
        bits.to_be_bytes().into_iter().take(four.len() * 6 / 8)
    });
    bytes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_decoded() {
        for (text, wanted) in
            [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYg==", "foob")]
        {
            assert_eq!(decoded(text), wanted.as_bytes(), "{text}");
        }
        assert_eq!(decoded("+/8A"), [0xfb, 0xff, 0]);
    }
}

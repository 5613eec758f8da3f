//! A real browser (Debian's Chromium, without a window), driven over its own protocol through a pipe: no port, no library.
//!
//! Messages of the Chrome DevTools Protocol go in at descriptor 3 and come out at 4, each ended by a zero byte
//! (`content/browser/devtools/devtools_pipe_handler.cc`). It resolves no name and asks nobody but the addresses that it is told to.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};

use crate::waiting::{PATIENCE, wait_until_some};

/// A running browser with one page. Dropping it ends it.
pub struct Browser {
    child: Child,
    commands: Option<ChildStdin>,
    messages: Receiver<Value>,
    session: Option<String>,
    last: u64,
}

/// Flags that isolate the browser from the network and from other tests. A process of root has no sandbox.
const FLAGS: &str = "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --disable-sync \
                     --disable-background-networking --disable-component-update --disable-default-apps --no-proxy-server \
                     --hide-scrollbars --remote-debugging-pipe";

impl Browser {
    /// Starts it with a new profile in that directory and shows a page of this size.
    ///
    /// # Panics
    /// There is no Chromium: `scripts/setup test-parts` installs it.
    #[must_use]
    pub fn open(profile: &Path, (width, height): (u32, u32), url: &str) -> Self {
        // The pipe's descriptors have numbers, which a shell can give and no safe library here can.
        let start = "exec chromium \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>/dev/null";
        let mut command = Command::new("sh");
        command.args(["-c", start, "chromium"]).args(FLAGS.split_whitespace());
        command.arg(format!("--user-data-dir={}", profile.display()));
        command.arg(format!("--window-size={width},{height}"));
        command.arg("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1").arg("about:blank");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let told = BufReader::new(child.stdout.take().unwrap());
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for message in told.split(0).map_while(Result::ok) {
                let _ = sender.send(serde_json::from_slice(&message).unwrap_or_default());
            }
        });
        let commands = child.stdin.take();
        let mut browser = Self { child, commands, messages, session: None, last: 0 };
        let target = browser.send_command("Target.createTarget", &json!({ "url": url }));
        let attached = browser.send_command(
            "Target.attachToTarget",
            &json!({ "targetId": target["targetId"], "flatten": true }),
        );
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        browser
    }

    /// Sends a command and waits for its answer.
    ///
    /// # Panics
    /// The browser refuses it, or is gone: it is not installed, most likely.
    pub fn send_command(&mut self, method: &str, parameters: &Value) -> Value {
        self.try_ask(method, parameters).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    fn try_ask(&mut self, method: &str, parameters: &Value) -> Result<Value, Value> {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        let commands = self.commands.as_mut().unwrap();
        let sent = commands.write_all(format!("{message}\0").as_bytes()).and_then(|()| commands.flush());
        sent.expect("Chromium does not run; scripts/setup test-parts installs it");
        loop {
            let message = self.messages.recv_timeout(PATIENCE);
            let mut message = message.expect("Chromium ended or hangs; scripts/setup test-parts installs it");
            if message["id"] == self.last {
                let error = message["error"].take();
                return if error.is_null() { Ok(message["result"].take()) } else { Err(error) };
            }
        }
    }

    /// The value of an expression in the page; of a promise, what it comes to.
    ///
    /// # Panics
    /// It throws.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let mut answer = self.send_command("Runtime.evaluate", &evaluated(expression));
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].take()
    }

    /// Looks at the page until an expression is something other than null, false, 0 and the empty text.
    ///
    /// # Panics
    /// After [`PATIENCE`].
    pub fn wait_for_expression(&mut self, expression: &str) -> Value {
        let asked =
            format!("(() => {{ try {{ return ({expression}) || null; }} catch {{ return null; }} }})()");
        wait_until_some(expression, || {
            // An error: between two documents there is none to ask.
            let mut answer = self.try_ask("Runtime.evaluate", &evaluated(&asked)).ok()?;
            Some(answer["result"]["value"].take()).filter(|value| !value.is_null())
        })
    }

    /// Presses the left button on the middle of an element, as a person would.
    ///
    /// # Panics
    /// There is no such element, or it has no size.
    pub fn click(&mut self, element: &str) {
        let (x, y) = self.middle(element);
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
            self.mouse(kind, x, y);
        }
    }

    /// Points at the middle of an element.
    ///
    /// # Panics
    /// As [`Self::click`].
    pub fn move_pointer_to(&mut self, element: &str) {
        let (x, y) = self.middle(element);
        self.mouse("mouseMoved", x, y);
    }

    fn mouse(&mut self, kind: &str, x: f64, y: f64) {
        let button = if kind == "mouseMoved" { "none" } else { "left" };
        let event = json!({ "type": kind, "x": x, "y": y, "button": button, "clickCount": 1 });
        self.send_command("Input.dispatchMouseEvent", &event);
    }

    fn middle(&mut self, element: &str) -> (f64, f64) {
        let expression = format!(
            "(e => {{ e.scrollIntoView({{ block: 'center' }}); const b = e.getBoundingClientRect(); \
             return b.width && b.height ? [b.left + b.width / 2, b.top + b.height / 2] : null; }})({element})"
        );
        let place = self.evaluate(&expression);
        let at =
            |index: usize| place[index].as_f64().unwrap_or_else(|| panic!("{element} is not to be seen"));
        (at(0), at(1))
    }

    /// Types into what has the focus.
    pub fn type_text(&mut self, text: &str) {
        self.send_command("Input.insertText", &json!({ "text": text }));
    }

    /// Loads the page anew.
    pub fn reload(&mut self) {
        self.send_command("Page.reload", &json!({}));
    }
}

fn evaluated(expression: &str) -> Value {
    json!({ "expression": expression, "returnByValue": true, "awaitPromise": true })
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends with its pipe, its helpers with it.
        self.commands = None;
        let gone = (0..400).any(|_| {
            let gone = matches!(self.child.try_wait(), Ok(Some(_)));
            if !gone {
                crate::waiting::pause(std::time::Duration::from_millis(25));
            }
            gone
        });
        if !gone {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

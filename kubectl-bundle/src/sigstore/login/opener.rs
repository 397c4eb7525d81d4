//! The program that opens an address in a browser.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use url::Url;

/// A program, and what comes before the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Opener {
    program: PathBuf,
    before: Option<&'static str>,
}

impl Opener {
    /// That of this platform. `graphical`: something is there that windows can be shown on (where that can be told).
    pub(crate) fn find(graphical: bool) -> Option<Self> {
        let (name, before) = if cfg!(windows) {
            ("rundll32", Some("url.dll,FileProtocolHandler"))
        } else if cfg!(target_os = "macos") {
            ("open", None)
        } else if graphical {
            ("xdg-open", None)
        } else {
            // xdg-open would start a browser of text in the terminal.
            return None;
        };
        crate::path::find(name)
            .program()
            .map(|program| Self { program, before })
    }

    /// Opens `url`, and does not wait for the browser to end. Whether it worked, nobody can tell.
    pub(super) fn open(&self, url: &Url) -> bool {
        let mut command = Command::new(&self.program);
        command
            .args(self.before)
            .arg(url.as_str())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        crate::secrets::withhold(&mut command);
        command.spawn().is_ok_and(|mut child| {
            std::thread::spawn(move || child.wait());
            true
        })
    }
}

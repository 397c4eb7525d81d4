//! Command that opens a URL in a browser.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use url::Url;

/// Command that opens a URL, and its argument before the URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Opener {
    program: PathBuf,
    before: Option<&'static str>,
}

impl Opener {
    /// Returns the command for this platform. `graphical` is `true` if a display is available. On
    /// platforms other than Windows and macOS, returns `None` without a display.
    pub(crate) fn find(graphical: bool) -> Option<Self> {
        let (name, before) = if cfg!(windows) {
            ("rundll32", Some("url.dll,FileProtocolHandler"))
        } else if cfg!(target_os = "macos") {
            ("open", None)
        } else if graphical {
            ("xdg-open", None)
        } else {
            // Without a display, xdg-open would start a text browser in the terminal.
            return None;
        };
        crate::system::command_lookup::find(name)
            .program()
            .map(|program| Self { program, before })
    }

    /// Opens `url` without waiting. Returns `false` if the command cannot be started. `true` does
    /// not mean that a browser opened.
    pub(super) fn open(&self, url: &Url) -> bool {
        let mut command = Command::new(&self.program);
        command
            .args(self.before)
            .arg(url.as_str())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        crate::system::secrets::remove_secrets(&mut command);
        command.spawn().is_ok_and(|mut child| {
            std::thread::spawn(move || child.wait());
            true
        })
    }
}

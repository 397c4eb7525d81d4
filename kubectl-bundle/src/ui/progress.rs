//! A progress line for work that takes longer than a glance.
//! Not here: any result; what matters is said when the line is gone.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A line that goes away by itself, also when an error ends the work.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Starts one; draws nothing unless `visible`.
    pub(crate) fn start(visible: bool, what: &str) -> Self {
        let target = if visible {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        if visible {
            bar.enable_steady_tick(Duration::from_millis(120));
        }
        Self(bar)
    }

    /// Says what is being done now.
    pub(crate) fn now(&self, what: impl Into<String>) {
        self.0.set_message(what.into());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

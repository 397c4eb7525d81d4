//! A progress line for work that takes longer than a glance.

use std::sync::Arc;
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

/// Steps of a wait: a progress line on a terminal, lines of their own elsewhere, each once.
pub(crate) struct Steps {
    line: Progress,
    is_drawn: bool,
    last: String,
}

impl Steps {
    /// Starts with the first step; `is_drawn`: on a terminal.
    pub(super) fn start(is_drawn: bool, first: &str) -> Self {
        Self {
            line: Progress::start(is_drawn, first),
            is_drawn,
            last: first.to_owned(),
        }
    }

    /// The next step. Says nothing where it is the last one again.
    pub(crate) fn now(&mut self, ui: &mut super::Ui, step: &str) {
        if self.last == step {
            return;
        }
        step.clone_into(&mut self.last);
        if self.is_drawn {
            self.line.now(super::safe(step));
        } else {
            ui.note(super::safe(step));
        }
    }
}

/// A bar for content that moves: how much of it, how fast, how long still.
#[derive(Debug)]
pub(crate) struct Transfer(ProgressBar);

impl Transfer {
    /// Starts one; draws nothing unless `visible`.
    pub(crate) fn start(visible: bool, what: &str) -> Self {
        let target = if visible {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        if let Ok(style) = ProgressStyle::with_template(
            "{spinner} {msg} {wide_bar} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}",
        ) {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        if visible {
            bar.enable_steady_tick(Duration::from_millis(120));
        }
        Self(bar)
    }

    /// As those see it who move the content.
    pub(crate) fn observer(self: &Arc<Self>) -> Arc<dyn bundle_oci::progress::Progress> {
        Arc::clone(self) as Arc<dyn bundle_oci::progress::Progress>
    }
}

impl bundle_oci::progress::Progress for Transfer {
    fn expect(&self, bytes: u64) {
        self.0.inc_length(bytes);
    }

    fn moved(&self, bytes: u64) {
        self.0.inc(bytes);
    }

    fn skipped(&self, bytes: u64) {
        self.0.inc(bytes);
    }

    fn resent(&self, bytes: u64) {
        self.0.inc_length(bytes);
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

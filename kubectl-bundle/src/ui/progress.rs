//! Progress lines for long operations.

use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A progress line. The line is removed when this value is dropped.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Starts a progress line. Nothing is drawn if `visible` is `false`.
    pub(crate) fn start(visible: bool, message: &str) -> Self {
        let target = if visible {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style);
        }
        bar.set_message(super::safe(message));
        if visible {
            bar.enable_steady_tick(Duration::from_millis(120));
        }
        Self(bar)
    }

    /// Sets the current step.
    pub(crate) fn now(&self, message: &str) {
        self.0.set_message(super::safe(message));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Steps of a wait: a progress line on a terminal, otherwise one line per step.
pub(crate) struct StepProgress {
    line: Progress,
    is_drawn: bool,
    last: String,
}

impl StepProgress {
    /// Starts with the first step. `is_drawn` is `true` on a terminal.
    pub(super) fn start(is_drawn: bool, first: &str) -> Self {
        Self {
            line: Progress::start(is_drawn, first),
            is_drawn,
            last: first.to_owned(),
        }
    }

    /// Sets the next step. If the step is the same as before, nothing is printed.
    pub(crate) fn now(&mut self, ui: &mut super::Ui, step: &str) {
        if self.last == step {
            return;
        }
        step.clone_into(&mut self.last);
        if self.is_drawn {
            self.line.now(step);
        } else {
            ui.note(super::safe(step));
        }
    }
}

/// A progress bar for transfers: amount, rate and remaining time.
#[derive(Debug)]
pub(crate) struct TransferProgress(ProgressBar);

impl TransferProgress {
    /// Starts a progress bar. Nothing is drawn if `visible` is `false`.
    pub(crate) fn start(visible: bool, message: &str) -> Self {
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
        bar.set_message(super::safe(message));
        if visible {
            bar.enable_steady_tick(Duration::from_millis(120));
        }
        Self(bar)
    }

    /// Returns the observer for the registry client.
    pub(crate) fn observer(self: &Arc<Self>) -> Arc<dyn bundle_oci::progress::Progress> {
        Arc::clone(self) as Arc<dyn bundle_oci::progress::Progress>
    }
}

impl bundle_oci::progress::Progress for TransferProgress {
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

impl Drop for TransferProgress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Formats a size for people.
pub(crate) fn format_size(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}

//! ProvisionerClasses that were read in the last second. In a burst of writes, many reconciles need
//! the same class.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bundle_core::review::Class;

/// Time for which a class is used after the start of its read.
const TTL: Duration = Duration::from_secs(1);
/// Maximum number of classes. When this number is reached, all classes are removed. The only effect
/// is that classes are read again.
const MAX_CLASSES: usize = 8;

/// The classes that were read in the last second, by name. Each event of a class removes all
/// classes, so a class is never older than the event that starts a reconcile. Only valid classes of
/// this project are stored.
#[derive(Debug, Default)]
pub(in crate::reconcile) struct RecentClasses(Mutex<ReadClasses>);

#[derive(Debug, Default)]
struct ReadClasses {
    /// Number of events.
    events: u64,
    /// The classes, each with the time at which its read began.
    classes: HashMap<String, (Instant, Class)>,
}

/// A read of a class that has not ended.
#[derive(Debug, Clone, Copy)]
pub(in crate::reconcile) struct ClassRead {
    began: Instant,
    /// Number of events at the beginning of the read.
    events: u64,
}

impl RecentClasses {
    /// Returns the class with this name. If the class was not read in the last second, returns the
    /// read that begins now.
    pub(in crate::reconcile) fn get(&self, name: &str, now: Instant) -> Result<Class, ClassRead> {
        let read = self.read();
        match read.classes.get(name) {
            Some((began, class)) if now.saturating_duration_since(*began) < TTL => {
                Ok(class.clone())
            }
            _ => Err(ClassRead {
                began: now,
                events: read.events,
            }),
        }
    }

    /// Stores the result of a read. Does nothing if an event has arrived since the read began,
    /// because the result can be older than this event.
    pub(in crate::reconcile) fn insert(&self, read: ClassRead, class: &Class) {
        let mut all = self.read();
        if all.events != read.events {
            return;
        }
        if all.classes.len() >= MAX_CLASSES && !all.classes.contains_key(&class.name) {
            all.classes.clear();
        }
        let name = class.name.clone();
        all.classes.insert(name, (read.began, class.clone()));
    }

    /// Removes all classes. Called for each event of a class, before the event starts reconciles.
    pub(in crate::reconcile) fn clear(&self) {
        let mut all = self.read();
        all.events = all.events.wrapping_add(1);
        all.classes.clear();
    }

    fn read(&self) -> MutexGuard<'_, ReadClasses> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn class(name: &str) -> Class {
        let spec = json!({"provisioner": "core.rukpak.io/plain"});
        Class::parse(name, &spec).unwrap()
    }

    #[test]
    fn class_is_used_for_one_second_after_the_start_of_its_read() {
        let recent = RecentClasses::default();
        let began = Instant::now();
        let read = recent.get("plain", began).unwrap_err();
        recent.insert(read, &class("plain"));
        let found = recent.get("plain", began + Duration::from_millis(999));
        assert_eq!(found.unwrap(), class("plain"));
        assert!(recent.get("other", began).is_err());
        assert!(recent.get("plain", began + TTL).is_err());
    }

    #[test]
    fn class_is_not_older_than_an_event() {
        let recent = RecentClasses::default();
        let now = Instant::now();
        let read = recent.get("plain", now).unwrap_err();
        recent.clear();
        // This read can have returned the class from before the event.
        recent.insert(read, &class("plain"));
        let read = recent.get("plain", now).unwrap_err();
        recent.insert(read, &class("plain"));
        assert!(recent.get("plain", now).is_ok());
        recent.clear();
        assert!(recent.get("plain", now).is_err());
    }

    #[test]
    fn number_of_classes_is_limited() {
        let recent = RecentClasses::default();
        let now = Instant::now();
        for number in 0..=MAX_CLASSES {
            let name = number.to_string();
            let read = recent.get(&name, now).unwrap_err();
            recent.insert(read, &class(&name));
        }
        assert_eq!(recent.read().classes.len(), 1);
    }
}

//! Cache of compiled patterns, for the validation of many objects.

use std::collections::HashMap;

use super::{Pattern, PatternError};

/// Maximum number of patterns in a limited cache.
const MAX_PATTERNS: usize = 64;
/// Maximum memory of a compiled pattern in a limited cache, in bytes. The same limit applies to the
/// evaluation of the pattern.
const MAX_SIZE: usize = 128 << 10;
/// Number of validation steps that a limited cache charges for one compilation. A compilation takes
/// about as long as this number of steps.
const STEPS: usize = 10_000;

/// Cache of compiled patterns. The key is the text of the pattern.
#[derive(Default)]
pub(crate) struct Patterns {
    compiled: HashMap<String, Result<Pattern, PatternError>>,
    /// `true` if memory and steps are limited.
    is_limited: bool,
}

impl Patterns {
    /// Returns a cache with limited memory, for untrusted schemas and objects.
    pub(crate) fn limited() -> Self {
        Self {
            compiled: HashMap::new(),
            is_limited: true,
        }
    }

    /// Returns `true` if memory and steps are limited. With such a cache, the validation of a value
    /// also reports an invalid pattern. Otherwise only the check of the CustomResourceDefinition
    /// reports it.
    pub(super) fn is_limited(&self) -> bool {
        self.is_limited
    }

    /// Returns the compiled pattern, and the number of validation steps to charge for its
    /// compilation. The number is 0 if the pattern was already compiled, or if the cache is not
    /// limited.
    pub(super) fn get(&mut self, text: &str) -> (&Result<Pattern, PatternError>, usize) {
        static ABSENT: Result<Pattern, PatternError> = Err(PatternError::Bad(String::new()));
        let mut steps = 0;
        if !self.compiled.contains_key(text) {
            let pattern = if self.is_limited {
                steps = STEPS;
                if self.compiled.len() >= MAX_PATTERNS {
                    self.compiled.clear();
                }
                Pattern::with_size_limit(text, MAX_SIZE)
            } else {
                Pattern::new(text)
            };
            self.compiled.insert(text.to_owned(), pattern);
        }
        (self.compiled.get(text).unwrap_or(&ABSENT), steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limited_cache_counts_compilations_and_rejects_large_patterns() {
        let mut patterns = Patterns::limited();
        assert_eq!(patterns.get("^a$").1, STEPS);
        assert_eq!(patterns.get("^a$").1, 0);
        let large = "(a{1000}){100}";
        assert!(matches!(
            patterns.get(large).0,
            Err(PatternError::Unknown(_))
        ));
        for number in 0..MAX_PATTERNS {
            patterns.get(&format!("^{number}$"));
        }
        assert!(patterns.compiled.len() <= MAX_PATTERNS);
        assert_eq!(patterns.get("^a$").1, STEPS);
        let mut free = Patterns::default();
        assert_eq!(free.get("^a$").1, 0);
    }
}

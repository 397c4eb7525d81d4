//! Cache of compiled patterns, for the validation of many objects.

use std::collections::HashMap;

use super::pattern::MAX_LENGTH;
use super::{BudgetExceeded, Pattern, PatternError, ValidationBudget};

/// Maximum number of patterns in a limited cache.
const MAX_PATTERNS: usize = 64;
/// Maximum memory of a compiled pattern in a limited cache, in bytes. The same limit applies to the
/// evaluation of the pattern.
const MAX_SIZE: usize = 128 << 10;
/// Number of validation steps that a limited cache charges for one compilation, in addition to the
/// length of the pattern. The compilation of a usual pattern takes about as long.
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

    /// Returns the compiled pattern. A limited cache charges the budget for the lookup, and for the
    /// compilation if the pattern was not compiled before.
    pub(super) fn get(
        &mut self,
        text: &str,
        budget: &mut ValidationBudget<'_>,
    ) -> Result<&Result<Pattern, PatternError>, BudgetExceeded> {
        static ABSENT: Result<Pattern, PatternError> = Err(PatternError::Bad(String::new()));
        if self.is_limited {
            // The cache computes a hash of the pattern.
            budget.charge_iteration(text)?;
        }
        if !self.compiled.contains_key(text) {
            let pattern = if self.is_limited {
                budget.charge_steps(STEPS + text.len().min(MAX_LENGTH))?;
                if self.compiled.len() >= MAX_PATTERNS {
                    self.compiled.clear();
                }
                Pattern::with_size_limit(text, MAX_SIZE)
            } else {
                Pattern::new(text)
            };
            self.compiled.insert(text.to_owned(), pattern);
        }
        Ok(self.compiled.get(text).unwrap_or(&ABSENT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limited_cache_counts_compilations_and_rejects_large_patterns() {
        // These steps suffice for lookups, but for no compilation.
        let few = || ValidationBudget::without_deadline(100);
        let many = &mut ValidationBudget::without_deadline(10_000_000);
        let mut patterns = Patterns::limited();
        assert!(patterns.get("^a$", &mut few()).is_err());
        assert!(patterns.get("^a$", many).is_ok());
        assert!(patterns.get("^a$", &mut few()).is_ok());
        let long = "a".repeat(MAX_LENGTH + 1);
        let classes = r"(?i)\pL".repeat(100);
        for text in ["(a{1000}){100}", long.as_str(), classes.as_str()] {
            let large = patterns.get(text, many).unwrap();
            assert_eq!(large.as_ref().err(), Some(&PatternError::too_large()));
        }
        for number in 0..MAX_PATTERNS {
            assert!(patterns.get(&format!("^{number}$"), many).is_ok());
        }
        assert!(patterns.compiled.len() <= MAX_PATTERNS);
        assert!(patterns.get("^a$", &mut few()).is_err());
        let mut free = Patterns::default();
        assert!(free.get("^a$", &mut few()).is_ok());
    }
}

//! Checks the keys of a large document before it is parsed. If a key is a list or a map, the parser
//! would store the whole list or map before it rejects the key.

use serde_saphyr::granit_parser::{self, Event, Parser};

use super::{Allowance, limits, problem, split::Part};
use crate::diagnostic::Finding;

/// Length of the largest text that needs no check, in bytes. Each node has at least two bytes.
const SMALL: usize = 2 * limits::MAX_STORED_NODES;

/// Position in an open list or map.
#[derive(Clone, Copy)]
enum Position {
    List,
    Key,
    Value,
}

/// Returns an error if a key of a large document is a list or map, or if parsing was cancelled.
/// Ignores all other errors, which the parser reports.
pub(super) fn check(part: Part<'_>, file: &str, allowance: &Allowance) -> Result<(), Finding> {
    if part.text.len() <= SMALL {
        return Ok(());
    }
    let depth = granit_parser::Options::default().block_nesting_limit;
    let options = granit_parser::options! {
        flow_nesting_limit: limits::MAX_DEPTH,
        block_nesting_limit: depth.max(limits::MAX_DEPTH + 1),
    };
    let (mut open, mut nodes) = (Vec::new(), 0);
    for event in Parser::new_from_str_with_options(part.text, options) {
        allowance.check()?;
        let Ok((event, span)) = event else {
            return Ok(());
        };
        let is_node = !matches!(event, Event::SequenceEnd | Event::MappingEnd);
        nodes += usize::from(is_node);
        if nodes > 2 * limits::MAX_NODES {
            return Ok(());
        }
        match event {
            Event::SequenceStart(..) | Event::MappingStart(..)
                if matches!(open.last(), Some(Position::Key)) =>
            {
                let line = part.line + span.start.line().saturating_sub(1);
                return Err(problem::complex_key(line, file));
            }
            Event::SequenceStart(..) => open.push(Position::List),
            Event::MappingStart(..) => open.push(Position::Key),
            Event::SequenceEnd | Event::MappingEnd => {
                open.pop();
                next(&mut open);
            }
            Event::Scalar(..) | Event::Alias(..) => next(&mut open),
            _ => {}
        }
    }
    Ok(())
}

/// Goes to the next position after a node.
fn next(open: &mut [Position]) {
    if let Some(last) = open.last_mut() {
        *last = match *last {
            Position::List => Position::List,
            Position::Key => Position::Value,
            Position::Value => Position::Key,
        };
    }
}

//! File descriptors: how many this process may have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises what this process may have at a time to `wanted`, as far as the system lets it, and gives what it may have now. A shell's
/// default of 1024 is less than a server's connections and its own files together.
pub fn raise_descriptors(wanted: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let Some(current) = limit.current.filter(|&current| current < wanted) else {
        return limit.current.unwrap_or(u64::MAX);
    };
    let raised = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted)).max(current);
    match setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum: limit.maximum }) {
        Ok(()) if raised >= wanted => raised,
        done => {
            let may = if done.is_ok() { raised } else { current };
            tracing::warn!(
                may,
                wanted,
                "few file descriptors: raise the hard limit (ulimit -Hn) to serve more"
            );
            may
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_as_far_as_it_can_be_and_never_lowered() {
        let before = getrlimit(Resource::Nofile);
        let low = Rlimit { current: Some(200), ..before };
        setrlimit(Resource::Nofile, low).expect("lowered");
        assert_eq!(raise_descriptors(100), 200);
        let wanted = before.maximum.map_or(300, |maximum| maximum.min(300));
        assert_eq!(raise_descriptors(300), wanted);
        if let Some(maximum) = before.maximum {
            assert_eq!(raise_descriptors(maximum + 1), maximum);
        }
        setrlimit(Resource::Nofile, before).expect("as before");
    }
}

//! The limit on open file descriptors.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises this process's descriptor limit to `wanted`, or as far as the system allows, and returns the limit.
/// A shell's default of 1024 is too low for a server's connections and files.
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

//! What may be done to the members of etcd, and what is due. Pure.
//!
//! etcd refuses some of this itself, in words for those who run etcd. These rules come first, and their words
//! are for those who run Braid.

use braid_wire::{Reason, Refusal};

/// Maximum number of managers: more votes make each change slower, and nothing safer.
pub(crate) const MEMBERS_MAX: usize = 7;

/// A member of etcd.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) id: u64,
    /// Address of its manager; empty: it has not started yet.
    pub(crate) name: String,
    /// Address for other members.
    pub(crate) peer: String,
    /// Address for managers; empty: it has not started yet.
    pub(crate) client: String,
    /// True if it only follows: it has no vote yet.
    pub(crate) learns: bool,
    /// State that it tells of itself; `None`: it does not answer.
    pub(crate) state: Option<State>,
}

/// State of a member, by its own word.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// Member that leads, as this one knows.
    pub(crate) leader: u64,
    /// Size of its database.
    pub(crate) database_bytes: u64,
    /// Part of it that is in use.
    pub(crate) used_bytes: u64,
}

impl Member {
    /// The name by which people know the member.
    pub(crate) fn shown(&self) -> &str {
        if self.name.is_empty() { &self.peer } else { &self.name }
    }

    fn is_named(&self, asked: &str) -> bool {
        self.shown() == asked
    }

    fn is_on(&self, host: &str) -> bool {
        host_of(self.shown()) == host
    }

    fn has_started(&self) -> bool {
        !self.name.is_empty()
    }

    fn leads(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.leader == self.id)
    }
}

/// The host of an address.
fn host_of(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

/// The decision on a host that becomes a manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Add {
    /// It becomes a new member.
    Anew,
    /// It became one before, and did not start.
    Again,
}

/// Decides on a host that is to become the manager at `address`, with its etcd at `peer`.
pub(crate) fn add(members: &[Member], address: &str, peer: &str) -> Result<Add, Refusal> {
    if let Some(known) = members.iter().find(|member| member.peer == peer || member.name == address) {
        if !known.has_started() && known.peer == peer {
            return Ok(Add::Again);
        }
        let name = known.shown();
        let detail = format!(
            "{name} is one of the managers already: start it again with `braid manager serve --dir DIR`; if its disk is \
             lost, stop it, take it out first (braid manager replace {name}) and join with the token that this prints"
        );
        return Err(Refusal::new(Reason::Exists, detail));
    }
    if let Some(other) = members.iter().find(|member| member.learns) {
        let detail = format!("{} is joining, and one can join at a time: wait until it has", other.shown());
        return Err(Refusal::new(Reason::Busy, detail));
    }
    if members.len() >= MEMBERS_MAX {
        let detail =
            format!("a cluster has at most {MEMBERS_MAX} managers: take one out (braid manager replace)");
        return Err(Refusal::new(Reason::Quota, detail));
    }
    Ok(Add::Anew)
}

/// Addresses of the managers that have a vote.
pub(crate) fn voters(members: &[Member]) -> Vec<String> {
    let has_vote = |member: &&Member| member.has_started() && !member.learns;
    members.iter().filter(has_vote).map(|member| member.name.clone()).collect()
}

/// Decides which member is taken out for a manager that is lost.
pub(crate) fn remove<'a>(members: &'a [Member], asked: &str) -> Result<&'a Member, Refusal> {
    let mut found: Vec<&Member> = members.iter().filter(|member| member.is_named(asked)).collect();
    if found.is_empty() {
        found = members.iter().filter(|member| member.is_on(asked)).collect();
    }
    let names = |of: &[&Member]| of.iter().map(|member| member.shown()).collect::<Vec<_>>().join(", ");
    let lost = match found.as_slice() {
        [lost] => *lost,
        [] => {
            let all: Vec<&Member> = members.iter().collect();
            let detail = format!("no manager is at {asked:?}: the managers are {}", names(&all));
            return Err(Refusal::new(Reason::NotFound, detail));
        }
        _ => {
            let detail = format!("more than one manager is at {asked:?}: name one of {}", names(&found));
            return Err(Refusal::new(Reason::NotFound, detail));
        }
    };
    if lost.state.is_some() {
        let detail =
            format!("{} still answers: stop its manager first, if it is to leave for ever", lost.shown());
        return Err(Refusal::new(Reason::NotAllowed, detail));
    }
    if lost.learns {
        return Ok(lost);
    }
    let left: Vec<&Member> = members.iter().filter(|member| !member.learns && member.id != lost.id).collect();
    let live = left.iter().filter(|member| member.state.is_some()).count();
    if 2 * live <= left.len() {
        let away: Vec<&str> =
            left.iter().filter(|member| member.state.is_none()).map(|member| member.shown()).collect();
        let detail = format!(
            "without {} only {live} of {} managers would answer, which is no majority: start {} first",
            lost.shown(),
            left.len(),
            away.join(", ")
        );
        return Err(Refusal::new(Reason::NotAllowed, detail));
    }
    Ok(lost)
}

/// The member whose vote is due, if it has caught up.
pub(crate) fn learner(members: &[Member]) -> Option<&Member> {
    members.iter().find(|member| member.learns && member.has_started())
}

/// The member that was added and has never started.
pub(crate) fn unstarted(members: &[Member]) -> Option<&Member> {
    members.iter().find(|member| member.learns && !member.has_started())
}

/// A step of upkeep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Forget what no revision needs any more.
    Compact,
    /// Have this member give free space of its database back. It answers nothing meanwhile.
    Defragment(u64),
    /// End the alarm of this member; without any, all take changes again.
    Disarm(u64),
}

/// The upkeep that is due: all of it if members are out of space (`full`), which makes every one refuse
/// changes; else one member at most whose database is mostly free space and more than half of `quota_bytes`.
/// Members that follow come first, the one that leads last: its turn costs the cluster a moment.
pub(crate) fn upkeep(members: &[Member], full: &[u64], quota_bytes: u64) -> Vec<Step> {
    let mut answer: Vec<&Member> = members.iter().filter(|member| member.state.is_some()).collect();
    answer.sort_by_key(|member| (member.leads(), member.id));
    if !full.is_empty() {
        let defragment = answer.iter().map(|member| Step::Defragment(member.id));
        let disarm = full.iter().map(|id| Step::Disarm(*id));
        return std::iter::once(Step::Compact).chain(defragment).chain(disarm).collect();
    }
    let is_due =
        |state: &State| state.database_bytes > quota_bytes / 2 && state.used_bytes < state.database_bytes / 2;
    let due = answer.iter().find(|member| member.state.as_ref().is_some_and(is_due));
    due.map(|member| Step::Defragment(member.id)).into_iter().collect()
}

/// Ok if members have so much room again that they may take changes.
pub(crate) fn has_room(members: &[Member], quota_bytes: u64) -> Result<(), Refusal> {
    let bytes = |member: &Member| member.state.as_ref().map_or(0, |state| state.database_bytes);
    let Some(fullest) = members.iter().max_by_key(|member| bytes(member)) else { return Ok(()) };
    let bytes = bytes(fullest);
    if bytes < quota_bytes / 20 * 19 {
        return Ok(());
    }
    let detail = format!(
        "the managers' etcd is full: of {quota_bytes} bytes {} uses {bytes}, and none of them can be freed. Names can be read, \
         and nothing changes: remove snapshots (braid snapshot rm) or files",
        fullest.shown()
    );
    Err(Refusal::new(Reason::ManagerFull, detail))
}

/// Names of the snapshots to be removed: all but the newest `keep`. Their names sort by time.
pub(crate) fn superfluous(mut names: Vec<String>, keep: usize) -> Vec<String> {
    names.sort_unstable();
    names.truncate(names.len().saturating_sub(keep));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A member on this host, which answers or not.
    fn member(id: u64, host: &str, answers: bool) -> Member {
        let state = State { leader: 1, database_bytes: 100, used_bytes: 90 };
        Member {
            id,
            name: format!("{host}:7400"),
            peer: format!("{host}:7381"),
            client: format!("{host}:7380"),
            learns: false,
            state: answers.then_some(state),
        }
    }

    fn unborn(id: u64, host: &str) -> Member {
        let client = String::new();
        Member { name: String::new(), client, learns: true, state: None, ..member(id, host, false) }
    }

    fn refused<T: std::fmt::Debug>(result: Result<T, Refusal>, reason: Reason, words: &str) {
        let refusal = result.expect_err(words);
        assert!(refusal.reason == reason && refusal.detail.contains(words), "{refusal}");
    }

    #[test]
    fn a_host_joins_once_and_one_at_a_time_and_may_repeat_what_it_did_not_finish() {
        let mut members = vec![member(1, "a", true)];
        assert_eq!(add(&members, "b:7400", "b:7381"), Ok(Add::Anew));
        members.push(unborn(2, "b"));
        assert_eq!(add(&members, "b:7400", "b:7381"), Ok(Add::Again));
        refused(add(&members, "c:7400", "c:7381"), Reason::Busy, "b:7381 is joining");
        members[1] = member(2, "b", false);
        refused(add(&members, "b:7400", "b:7381"), Reason::Exists, "braid manager replace b:7400");
        refused(add(&members, "b:7400", "b:9999"), Reason::Exists, "already");
        let many: Vec<Member> = (1..=7).map(|id| member(id, &format!("h{id}"), true)).collect();
        refused(add(&many, "x:7400", "x:7381"), Reason::Quota, "at most 7");
    }

    #[test]
    fn only_a_lost_manager_leaves_and_only_if_a_majority_of_the_others_lives() {
        let three = |live: [bool; 3]| {
            ["a", "b", "c"]
                .iter()
                .zip(live)
                .zip(1..)
                .map(|((host, live), id)| member(id, host, live))
                .collect::<Vec<_>>()
        };
        let left = |members: &[Member], asked: &str| remove(members, asked).map(|lost| lost.id);
        assert_eq!(left(&three([true, true, false]), "c:7400"), Ok(3));
        assert_eq!(left(&three([true, true, false]), "c"), Ok(3));
        refused(remove(&three([true, true, true]), "c"), Reason::NotAllowed, "still answers");
        refused(remove(&three([true, false, false]), "c"), Reason::NotAllowed, "start b:7400 first");
        refused(remove(&three([true, true, false]), "d"), Reason::NotFound, "a:7400, b:7400, c:7400");
        refused(remove(&[member(1, "a", false)], "a"), Reason::NotAllowed, "no majority");
        let mut joining = three([true, true, true]);
        joining.push(unborn(4, "d"));
        assert_eq!(left(&joining, "d"), Ok(4));
        assert_eq!(voters(&joining), ["a:7400", "b:7400", "c:7400"]);
        let other = Member { name: "a:1".into(), ..member(2, "a", false) };
        let twice = [member(1, "a", true), other, member(3, "b", true)];
        let words = "more than one manager is at \"a\": name one of a:7400, a:1";
        refused(remove(&twice, "a"), Reason::NotFound, words);
        assert!(!remove(&twice, "a").expect_err("two").detail.contains("b:7400"));
    }

    #[test]
    fn a_full_database_is_repaired_followers_first_and_then_takes_changes() {
        let mut members = vec![member(1, "a", true), member(2, "b", true), member(3, "c", false)];
        assert_eq!(upkeep(&members, &[], 1000), []);
        let all = [Step::Compact, Step::Defragment(2), Step::Defragment(1), Step::Disarm(2)];
        assert_eq!(upkeep(&members, &[2], 1000), all);
        members[0].state = Some(State { leader: 1, database_bytes: 600, used_bytes: 200 });
        assert_eq!(upkeep(&members, &[], 1000), [Step::Defragment(1)]);
        assert_eq!(has_room(&members, 1000), Ok(()));
        refused(has_room(&members, 620), Reason::ManagerFull, "a:7400 uses 600");
    }

    #[test]
    fn the_oldest_snapshots_are_too_many() {
        let names = ["b", "d", "a", "c"].map(String::from).to_vec();
        assert_eq!(superfluous(names.clone(), 3), ["a"]);
        assert!(superfluous(names, 7).is_empty());
    }
}

//! The tree of shares: what no promise takes is shared by weight, level by level, in device time.
//!
//! Start-time fair queueing (Goyal, Vin, Cheng: "Start-time Fair Queueing: A Scheduling Algorithm for
//! Integrated Services Packet Switching Networks", IEEE/ACM ToN 5(5), 1997) at each node. A node has a
//! virtual time: the start tag of the child that it served last. A child that begins to wait gets the start
//! tag `max(virtual time, its finish tag)`, so that it neither banks what it did not use nor escapes what it
//! owes. The child with the least start tag goes, and its finish tag is `start + cost / weight`. Two children
//! that both wait get device time in the ratio of their weights, but for at most one request of each, however
//! many requests each has waiting.
//!
//! Each node keeps its waiting children by direction too, so that the first request of one direction is found
//! while the other has no place left below.

use crate::cost::Direction;
use std::collections::BTreeSet;

/// Scale of virtual time, so that weights divide without loss.
const UNIT: u64 = 1 << 20;

/// Virtual time of a cost. A request that costs nothing counts a little, or the first of those that cost
/// nothing would always be the first.
fn weighed(cost_ns: u64, weight: u32) -> u128 {
    let cost_ns = cost_ns.max(1);
    match cost_ns.checked_mul(UNIT) {
        Some(scaled) => u128::from(scaled / u64::from(weight)),
        None => u128::from(cost_ns) * u128::from(UNIT) / u128::from(weight),
    }
}

/// Index of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Node(usize);

#[derive(Debug, Default)]
struct State {
    parent: Option<Node>,
    /// Number that a leaf's owner gave it.
    owner: Option<usize>,
    weight: u32,
    /// Start tag while something under the node waits.
    start: Option<u128>,
    /// Finish tag of the last request under it.
    finish: u128,
    /// Virtual time of its children.
    time: u128,
    /// Largest finish tag of its children.
    latest: u128,
    /// Children under which something waits, by start tag, for each direction that waits there.
    waiting: [BTreeSet<(u128, Node)>; 2],
    /// Directions in which something waits under the node.
    waits: [bool; 2],
    children: usize,
}

#[derive(Debug)]
pub(crate) struct Tree {
    nodes: Vec<State>,
    free: Vec<Node>,
}

impl Tree {
    pub(crate) const ROOT: Node = Node(0);

    pub(crate) fn new() -> Tree {
        Tree { nodes: vec![State::default()], free: Vec::new() }
    }

    /// Adds a node; a leaf has the number of its owner.
    pub(crate) fn add(&mut self, parent: Node, weight: u32, owner: Option<usize>) -> Node {
        self.nodes[parent.0].children += 1;
        let weight = weight.max(1);
        let state = State { parent: Some(parent), owner, weight, ..State::default() };
        match self.free.pop() {
            Some(node) => {
                self.nodes[node.0] = state;
                node
            }
            None => {
                self.nodes.push(state);
                Node(self.nodes.len() - 1)
            }
        }
    }

    /// Removes a node under which nothing waits and that has no children.
    pub(crate) fn remove(&mut self, node: Node) {
        let state = std::mem::take(&mut self.nodes[node.0]);
        assert!(state.start.is_none() && state.children == 0, "the node is in use");
        if let Some(parent) = state.parent {
            self.nodes[parent.0].children -= 1;
        }
        self.free.push(node);
    }

    /// Weight of what comes next; what is charged stays.
    pub(crate) fn set_weight(&mut self, node: Node, weight: u32) {
        self.nodes[node.0].weight = weight.max(1);
    }

    pub(crate) fn parent(&self, node: Node) -> Option<Node> {
        self.nodes[node.0].parent
    }

    pub(crate) fn children(&self, node: Node) -> usize {
        self.nodes[node.0].children
    }

    /// True if nothing waits at all.
    pub(crate) fn is_idle(&self) -> bool {
        self.nodes[Tree::ROOT.0].waits == [false; 2]
    }

    /// True if the node owes nothing, so that a new one would be served as it.
    pub(crate) fn is_past(&self, node: Node) -> bool {
        let state = &self.nodes[node.0];
        let time = state.parent.map_or(0, |parent| self.nodes[parent.0].time);
        state.start.is_none() && state.finish <= time
    }

    /// A leaf has something that waits, in this direction.
    pub(crate) fn wake(&mut self, leaf: Node, direction: Direction) {
        if self.nodes[leaf.0].waits[other(direction)] {
            self.sleep(leaf);
        }
        let way = direction as usize;
        let mut node = leaf;
        while !self.nodes[node.0].waits[way] {
            self.nodes[node.0].waits[way] = true;
            let Some(parent) = self.nodes[node.0].parent else { return };
            let time = self.nodes[parent.0].time;
            let state = &mut self.nodes[node.0];
            let finish = state.finish;
            let start = *state.start.get_or_insert(finish.max(time));
            self.nodes[parent.0].waiting[way].insert((start, node));
            node = parent;
        }
    }

    /// A leaf has nothing more that waits. What it owes stays.
    pub(crate) fn sleep(&mut self, leaf: Node) {
        for way in 0..2 {
            let mut node = leaf;
            while self.nodes[node.0].waits[way] && self.nodes[node.0].waiting[way].is_empty() {
                let state = &mut self.nodes[node.0];
                state.waits[way] = false;
                if state.waits == [false; 2] {
                    // The end of a busy stretch: all begin the next one as equals.
                    state.time = state.latest.max(state.time);
                }
                let Some(parent) = state.parent else { break };
                let Some(start) = state.start else { break };
                if state.waits == [false; 2] {
                    state.start = None;
                }
                self.nodes[parent.0].waiting[way].remove(&(start, node));
                node = parent;
            }
        }
    }

    /// The owner of the leaf that goes next, of those that wait in these directions.
    pub(crate) fn first(&self, directions: &[Direction]) -> Option<usize> {
        let mut node = &self.nodes[Tree::ROOT.0];
        let next = |node: &State| {
            directions.iter().filter_map(|way| node.waiting[*way as usize].first().copied()).min()
        };
        while let Some((_, child)) = next(node) {
            node = &self.nodes[child.0];
        }
        node.owner
    }

    /// A leaf is served: its request is charged to it and to all above it.
    pub(crate) fn charge(&mut self, leaf: Node, cost_ns: u64) {
        let mut node = leaf;
        while let Some(parent) = self.nodes[node.0].parent {
            let state = &self.nodes[node.0];
            let start = state.start.unwrap_or(state.finish);
            let finish = start + weighed(cost_ns, state.weight);
            self.nodes[node.0].finish = finish;
            self.restart(node, finish);
            let above = &mut self.nodes[parent.0];
            above.time = above.time.max(start);
            above.latest = above.latest.max(finish);
            node = parent;
        }
    }

    /// Gives a waiting node another start tag.
    fn restart(&mut self, node: Node, start: u128) {
        let state = &mut self.nodes[node.0];
        let waits = state.waits;
        let Some(parent) = state.parent else { return };
        let Some(before) = state.start else { return };
        state.start = Some(start);
        for (set, _) in self.nodes[parent.0].waiting.iter_mut().zip(waits).filter(|(_, waits)| *waits) {
            set.remove(&(before, node));
            set.insert((start, node));
        }
    }

    /// A request that was charged cost other than was thought. What is given back does not become credit: a
    /// start tag stays at the virtual time at least.
    pub(crate) fn correct(&mut self, leaf: Node, charged_ns: u64, actual_ns: u64) {
        let mut node = leaf;
        while let Some(parent) = self.nodes[node.0].parent {
            let time = self.nodes[parent.0].time;
            let state = &mut self.nodes[node.0];
            let more = weighed(actual_ns, state.weight);
            let less = weighed(charged_ns, state.weight);
            state.finish = (state.finish + more).saturating_sub(less);
            let start = state.start;
            if let Some(start) = start {
                self.restart(node, (start + more).saturating_sub(less).max(time));
            }
            let finish = self.nodes[node.0].finish;
            let above = &mut self.nodes[parent.0];
            above.latest = above.latest.max(finish);
            node = parent;
        }
    }
}

/// Index of the other direction.
fn other(direction: Direction) -> usize {
    match direction {
        Direction::Read => Direction::Write as usize,
        Direction::Write => Direction::Read as usize,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [Direction; 2] = [Direction::Read, Direction::Write];

    /// Serves this many requests of 1,000 ns and counts them for each leaf.
    fn serve(tree: &mut Tree, leaves: &[Node], requests: usize) -> Vec<usize> {
        let mut served = vec![0; leaves.len()];
        for _ in 0..requests {
            let owner = tree.first(&BOTH).unwrap();
            tree.charge(leaves[owner], 1000);
            served[owner] += 1;
        }
        served
    }

    #[test]
    fn each_level_shares_by_weight() {
        let mut tree = Tree::new();
        let one = tree.add(Tree::ROOT, 100, None);
        let two = tree.add(Tree::ROOT, 300, None);
        let leaves = [
            tree.add(one, 1, Some(0)),
            tree.add(one, 1, Some(1)),
            tree.add(two, 1, Some(2)),
            tree.add(two, 2, Some(3)),
        ];
        for leaf in leaves {
            tree.wake(leaf, Direction::Read);
        }
        assert_eq!(serve(&mut tree, &leaves, 2400), [300, 300, 600, 1200]);
    }

    #[test]
    fn the_idle_bank_nothing_and_owe_what_they_took() {
        let mut tree = Tree::new();
        let leaves = [tree.add(Tree::ROOT, 1, Some(0)), tree.add(Tree::ROOT, 1, Some(1))];
        tree.wake(leaves[0], Direction::Read);
        assert_eq!(serve(&mut tree, &leaves, 100), [100, 0]);
        tree.wake(leaves[1], Direction::Read);
        assert_eq!(serve(&mut tree, &leaves, 10), [5, 5]);
        tree.charge(leaves[1], 5000);
        tree.sleep(leaves[1]);
        tree.wake(leaves[1], Direction::Read);
        assert_eq!(serve(&mut tree, &leaves, 6), [5, 1]);
    }

    #[test]
    fn corrections_move_those_that_wait() {
        let mut tree = Tree::new();
        let leaves = [tree.add(Tree::ROOT, 1, Some(0)), tree.add(Tree::ROOT, 1, Some(1))];
        tree.wake(leaves[0], Direction::Read);
        tree.wake(leaves[1], Direction::Read);
        tree.charge(leaves[0], 10_000);
        tree.correct(leaves[0], 10_000, 2000);
        assert_eq!(serve(&mut tree, &leaves, 4), [1, 3]);
        // All is served and slept: nobody owes anything.
        tree.sleep(leaves[0]);
        assert!(!tree.is_idle());
        tree.sleep(leaves[1]);
        assert!(tree.is_idle() && tree.is_past(leaves[0]) && tree.is_past(leaves[1]));
        tree.remove(leaves[0]);
        assert_eq!(tree.children(Tree::ROOT), 1);
        assert_eq!(tree.add(Tree::ROOT, 1, None), leaves[0]);
    }

    #[test]
    fn one_direction_is_found_while_the_other_waits() {
        let mut tree = Tree::new();
        let tenant = tree.add(Tree::ROOT, 1, None);
        let leaves = [tree.add(tenant, 1, Some(0)), tree.add(tenant, 1, Some(1))];
        tree.wake(leaves[0], Direction::Write);
        assert_eq!(tree.first(&[Direction::Read]), None);
        tree.wake(leaves[1], Direction::Read);
        tree.charge(leaves[1], 1000);
        assert_eq!(tree.first(&BOTH), Some(0));
        assert_eq!(tree.first(&[Direction::Read]), Some(1));
        // The head of a queue may be of the other direction than the one before it.
        tree.wake(leaves[1], Direction::Write);
        assert_eq!(tree.first(&[Direction::Read]), None);
        tree.sleep(leaves[0]);
        assert_eq!(tree.first(&[Direction::Write]), Some(1));
        tree.sleep(leaves[1]);
        assert!(tree.is_idle());
    }
}

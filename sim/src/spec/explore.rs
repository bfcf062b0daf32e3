//! Every state of a specification within bounds, breadth first, each once. What is reached is
//! counted, and each step is one that the specification allows; a rule that breaks on the way is a
//! mistake of the specification itself.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::hash::{Hash, Hasher as _};

use super::quorum::Broken;

/// A specification with bounds.
pub trait Model {
    type State: Clone + Hash;

    fn begin(&self) -> Self::State;

    /// What may follow; an error is a theorem that does not hold.
    ///
    /// # Errors
    ///
    /// The theorem.
    fn next(&self, state: &Self::State) -> Result<Vec<Self::State>, Broken>;

    /// The state under the least of its names, so that states which differ in names only are one.
    fn least(&self, state: &Self::State) -> u64;

    /// What a trace can be compared with; `None` if it is beyond the bounds of shapes.
    fn shape(&self, state: &Self::State) -> Option<u64>;
}

/// What was reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    pub states: u64,
    pub steps: u64,
    /// All states within the bounds were reached; not if there were too many.
    pub is_complete: bool,
    pub shapes: BTreeSet<u64>,
    pub broken: Option<Broken>,
}

/// At most `states_max` states.
pub fn explore<M: Model>(model: &M, states_max: u64) -> Explored {
    let mut explored = Explored::default();
    // Asked only whether something is in it: its order is nobody's.
    let mut known = HashSet::new();
    let mut queue = VecDeque::new();
    let begin = model.begin();
    known.insert(model.least(&begin));
    queue.push_back(begin);
    while let Some(state) = queue.pop_front() {
        explored.states += 1;
        explored.shapes.extend(model.shape(&state));
        if explored.states >= states_max {
            return explored;
        }
        let next = match model.next(&state) {
            Ok(next) => next,
            Err(broken) => {
                explored.broken = Some(broken);
                return explored;
            }
        };
        for state in next {
            explored.steps += 1;
            if known.insert(model.least(&state)) {
                queue.push_back(state);
            }
        }
    }
    explored.is_complete = true;
    explored
}

/// The same for the same value, in each process.
pub fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// All orders of so many.
pub fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let shorter = orders(count - 1);
    let place = |order: &Vec<usize>, at: usize| {
        let mut order = order.clone();
        order.insert(at, count - 1);
        order
    };
    shorter.iter().flat_map(|order| (0..count).map(|at| place(order, at))).collect()
}

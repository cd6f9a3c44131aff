//! What outlives the agent: the journal of plans.

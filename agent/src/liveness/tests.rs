use rstest::rstest;

use super::*;

const SILENCE: Duration = Duration::from_secs(10);

/// A connection of an agent of JobSet `u`, and the clock of the agent in seconds.
struct TestConnection {
    start: Instant,
    liveness: Liveness,
}

fn nonce(number: u8) -> Nonce {
    serde_json::from_value(number.to_string().into()).unwrap()
}

fn of(uid: &str) -> GroupState {
    GroupState { uid: uid.to_owned(), synced: 1, deprecated: 0, failed: false, bypass: false, pods: 2, pause: None }
}

/// The sign of life of a leader of the release before.
fn beat_before(time: i64) -> Statement {
    Statement { repeats: false, ..Statement::beat(time) }
}

impl TestConnection {
    fn new() -> Self {
        let start = Instant::now();
        Self { start, liveness: Liveness::new("u".to_owned(), nonce(1), start, SILENCE) }
    }

    /// One that was answered at once, at time 0 of the leader.
    fn answered() -> Self {
        let mut connection = Self::new();
        assert!(connection.hear(Statement::answer(0, nonce(1), of("u")), 0).is_some());
        connection
    }

    fn hear(&mut self, statement: Statement, second: u64) -> Option<ChannelInput> {
        self.liveness.hear(statement, self.start + Duration::from_secs(second))
    }

    /// Until which second the relay counts.
    fn deadline(&self) -> u64 {
        (self.liveness.deadline() - self.start).as_secs()
    }
}

#[rstest]
#[case::own_jobset(Statement::broadcast(5_000, of("u")), 15)]
#[case::another_jobset(Statement::broadcast(5_000, of("v")), 10)]
#[case::sign_of_life(Statement::beat(5_000), 10)]
#[case::sign_of_life_of_release_before(beat_before(5_000), 15)]
#[case::answer_to_another_hello(Statement::answer(5_000, nonce(2), of("u")), 10)]
fn statement_counts_if_it_names_the_jobset(#[case] statement: Statement, #[case] deadline: u64) {
    let mut connection = TestConnection::answered();
    connection.hear(statement, 5);
    assert_eq!(connection.deadline(), deadline);
}

/// A relay can change the name of the JobSet in a hello, so that the leader answers it by another.
#[rstest]
#[case::answer(Statement::answer(1, nonce(1), of("v")))]
#[case::broadcast(Statement::broadcast(1, of("v")))]
fn state_of_another_jobset_is_not_told(#[case] statement: Statement) {
    let mut connection = TestConnection::new();
    assert_eq!(connection.hear(statement, 5), None);
    assert_eq!(connection.deadline(), 10);
}

/// One that was signed while the JobSet did not restart in place would let a worker start alone.
#[rstest]
#[case::before_the_answer(false, 9_000, false)]
#[case::older_than_the_answer(true, -1_000, false)]
#[case::older_than_another(true, 4_000, false)]
#[case::repeated(true, 5_000, false)]
#[case::newest(true, 5_001, true)]
fn state_that_may_be_old_is_not_told(#[case] is_answered: bool, #[case] time: i64, #[case] is_told: bool) {
    let mut connection = TestConnection::new();
    if is_answered {
        connection = TestConnection::answered();
        assert!(connection.hear(Statement::broadcast(5_000, of("u")), 5).is_some());
    }
    let old = GroupState { bypass: true, ..of("u") };
    assert_eq!(connection.hear(Statement::broadcast(time, old), 6).is_some(), is_told);
}

#[test]
fn statements_extend_the_life_whatever_the_clock_of_the_leader() {
    let mut connection = TestConnection::new();
    assert_eq!(connection.deadline(), 10);
    connection.hear(Statement::answer(-5_000, nonce(1), of("u")), 2);
    assert_eq!(connection.deadline(), 12);
    connection.hear(Statement::broadcast(-2_000, of("u")), 5);
    assert_eq!(connection.deadline(), 15);
}

#[test]
fn statement_before_the_answer_is_no_sign_of_life() {
    let mut connection = TestConnection::new();
    connection.hear(Statement::broadcast(7_000, of("u")), 5);
    connection.hear(beat_before(8_000), 5);
    assert_eq!(connection.deadline(), 10);
}

/// The answer to an agent whose JobSet is not there names none.
#[test]
fn answer_without_jobset_is_no_answer() {
    let mut connection = TestConnection::new();
    let answer = Statement { nonce: Some(nonce(1)), ..beat_before(1) };
    assert_eq!(connection.hear(answer, 5), None);
    assert_eq!(connection.deadline(), 10);
}

#[test]
fn statements_repeated_for_ever_give_no_life() {
    let mut connection = TestConnection::answered();
    for second in 3..10 {
        connection.hear(Statement::answer(0, nonce(1), of("u")), second);
        connection.hear(Statement::broadcast(3_000, of("u")), second);
        connection.hear(Statement::broadcast(2_000, of("u")), second);
    }
    assert_eq!(connection.deadline(), 13);
}

/// A relay that delays everything by the same time costs that time. One that delays more and more does not count.
#[test]
fn growing_delay_is_noticed_and_constant_delay_is_not() {
    let mut constant = TestConnection::new();
    constant.hear(Statement::answer(0, nonce(1), of("u")), 9);
    for made in (3..60).step_by(3) {
        assert!(constant.deadline() > made + 9, "statements arrive in time");
        constant.hear(Statement::broadcast(i64::try_from(made).unwrap() * 1_000, of("u")), made + 9);
    }
    let mut growing = TestConnection::answered();
    let mut arrives = 0;
    for made in (3..60).step_by(3) {
        arrives = 2 * made;
        if growing.deadline() < arrives {
            break;
        }
        growing.hear(Statement::broadcast(i64::try_from(made).unwrap() * 1_000, of("u")), arrives);
    }
    assert!(growing.deadline() < arrives && arrives <= 30, "noticed in second {arrives}");
}

#[test]
fn leader_with_a_clock_ahead_gives_old_statements_no_life() {
    let mut connection = TestConnection::answered();
    // The next leader, whose clock is an hour ahead.
    let hour = 3_600_000;
    connection.hear(Statement::broadcast(hour + 3_000, of("u")), 3);
    assert_eq!(connection.deadline(), 13);
    // Made three seconds later, and delivered at the last moment.
    connection.hear(Statement::broadcast(hour + 6_000, of("u")), 12);
    assert_eq!(connection.deadline(), 16);
}

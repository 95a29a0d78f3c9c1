// The checks must object to histories that are wrong, each for its own reason, and to
// nothing in one that is right: that is written down here, and each case changes a line or
// two of it. In these lines blanks stand for tabs, and times are small.

#include <algorithm>
#include <sstream>

#include <gtest/gtest.h>

#include "checks.h"

namespace {

// m1 is delivered, m2 at the second try, m4 after a lost lease, m5 is cancelled and replayed
// as m6, which is given back once; m3 is rolled back. m8 is given back, which counts as a try, and
// put off; its next lease is broken, and with the third it is delivered.
const char *const right = R"(1 d 0 audited queue=plain
1 d 0 audited queue=numbered
1 d 0 queue queue=plain max_attempts=3 max_in_flight=2 max_releases=0
10 p 1 begin auto=1
10 p 1 call n=1 verb=enqueue
10 p 1 item n=1 queue=plain tag=t1
12 p 1 row n=1 created=1 id=m1
12 p 1 ok n=1
13 p2 1 begin auto=0
13 p2 1 call n=1 verb=enqueue
13 p2 1 item n=1 partition_key=a queue=numbered tag=t2
14 p2 1 row n=1 created=1 id=m2 number=1
14 p2 1 ok n=1
15 p2 1 commit
16 p2 1 ended as=committed
17 p 3 begin auto=0
17 p 3 call n=1 verb=enqueue
17 p 3 item n=1 queue=plain tag=t3
18 p 3 row n=1 created=1 id=m3
18 p 3 ok n=1
19 p 3 rollback
19 p 3 ended as=rolledback
20 p 4 begin auto=1
20 p 4 call n=1 verb=enqueue
20 p 4 item key=k n=1 queue=plain tag=t4
21 p 4 row n=1 created=1 id=m4
21 p 4 ok n=1
22 p 5 begin auto=1
22 p 5 call n=1 verb=enqueue
22 p 5 item key=k n=1 queue=plain tag=t4b
23 p 5 row n=1 created=0 id=m4
23 p 5 ok n=1
24 q 1 begin auto=0
24 q 1 call n=1 verb=enqueue
24 q 1 item n=1 partition_key=a queue=numbered tag=t5
25 q 1 row n=1 created=1 id=m5 number=2
25 q 1 ok n=1
26 q 1 prepare gid=c/q/1
26 q 1 ended as=prepared
27 f 1 begin auto=1
27 f 1 call as=commit gid=c/q/1 n=1 verb=finish
28 f 1 ok n=1
30 p3 1 begin auto=1
30 p3 1 call n=1 verb=enqueue
30 p3 1 item n=1 queue=plain tag=t8
31 p3 1 row n=1 created=1 id=m8
31 p3 1 ok n=1
40 w 1 begin auto=1
40 w 1 call batch=4 n=1 verb=claim worker=w
41 w 1 row expires=1000 id=m1 n=1 tag=t1 token=k1
41 w 1 row expires=1000 id=m2 n=1 tag=t2 token=k2
41 w 1 row expires=1000 id=m4 n=1 tag=t4 token=k4
41 w 1 row expires=1000 id=m5 n=1 tag=t5 token=k5
41 w 1 ok n=1
42 w 2 begin auto=1
42 w 2 call n=1 verb=complete worker=w
42 w 2 item id=m1 n=1 reference=w:1 state=DISPATCHED token=k1
43 w 2 row n=1 no=1 recorded=DISPATCHED
43 w 2 ok n=1
44 w 3 begin auto=1
44 w 3 call n=1 verb=complete_batch worker=w
44 w 3 item id=m2 n=1 reference=w:2 state=RETRYABLE token=k2
44 w 3 item id=m1 n=1 reference=w:3 state=FAILED token=k1
45 w 3 row id=m2 n=1 no=1 recorded=RETRYABLE
45 w 3 row error=P7002 id=m1 n=1 no=1 recorded=DISPATCHED
45 w 3 ok n=1
46 o 1 begin auto=0
46 o 1 call id=m5 n=1 reason=no verb=cancel
47 o 1 row n=1 no=1
47 o 1 ok n=1
48 o 1 commit
49 o 1 ended as=committed
50 o 2 begin auto=1
50 o 2 call id=m5 n=1 verb=replay
51 o 2 row id=m6 n=1
51 o 2 ok n=1
52 o 3 begin auto=1
52 o 3 call n=1 verb=stats
53 o 3 row enqueued=5 n=1 queue=plain stats_reset=x
53 o 3 ok n=1
54 v 1 begin auto=1
54 v 1 call batch=1 n=1 verb=claim worker=v
55 v 1 row expires=1005 id=m6 n=1 tag=t5 token=k6
55 v 1 ok n=1
56 v 2 begin auto=1
56 v 2 call n=1 verb=renew worker=v
56 v 2 item id=m6 n=1 token=k6
57 v 2 row expires=1010 id=m6 n=1
57 v 2 ok n=1
58 v 3 begin auto=1
58 v 3 call n=1 verb=release worker=v
58 v 3 item id=m6 n=1 token=k6
59 v 3 row id=m6 n=1 next_attempt_at=x
59 v 3 ok n=1
60 u 1 begin auto=1
60 u 1 call batch=1 n=1 verb=claim worker=u
61 u 1 row expires=1060 id=m8 n=1 tag=t8 token=k8
61 u 1 ok n=1
62 u 2 begin auto=1
62 u 2 call n=1 verb=release worker=u
62 u 2 item id=m8 n=1 token=k8
63 u 2 row id=m8 n=1 next_attempt_at=x
63 u 2 ok n=1
64 o2 1 begin auto=1
64 o2 1 call id=m8 n=1 verb=reschedule
65 o2 1 row due=200 n=1
65 o2 1 ok n=1
210 u 3 begin auto=1
210 u 3 call batch=1 n=1 verb=claim worker=u
211 u 3 row expires=1210 id=m8 n=1 tag=t8 token=k82
211 u 3 ok n=1
212 o2 2 begin auto=1
212 o2 2 call id=m8 n=1 reason=hangs verb=break
213 o2 2 row n=1 no=2
213 o2 2 ok n=1
220 u 4 begin auto=1
220 u 4 call batch=1 n=1 verb=claim worker=u
221 u 4 row expires=1220 id=m8 n=1 tag=t8 token=k83
221 u 4 ok n=1
230 u 5 begin auto=1
230 u 5 call n=1 verb=complete worker=u
230 u 5 item id=m8 n=1 reference=u:1 state=DISPATCHED token=k83
231 u 5 row n=1 no=3 recorded=DISPATCHED
231 u 5 ok n=1
1100 r 1 begin auto=1
1100 r 1 call n=1 verb=repair worker=r
1102 r 1 row id=m4 lost_by=w n=1 no=1 state=ZOMBIE_REQUEUE
1102 r 1 ok n=1
1103 o 4 begin auto=1
1103 o 4 call n=1 verb=stats
1104 o 4 row enqueued=6 n=1 queue=plain stats_reset=x
1104 o 4 ok n=1
1110 w 4 begin auto=1
1110 w 4 call batch=9 n=1 verb=claim worker=w
1111 w 4 row expires=2000 id=m2 n=1 tag=t2 token=k22
1111 w 4 row expires=2000 id=m4 n=1 tag=t4 token=k42
1111 w 4 row expires=2000 id=m6 n=1 tag=t5 token=k62
1111 w 4 ok n=1
1112 w 5 begin auto=0
1112 w 5 call n=1 verb=complete_batch worker=w
1112 w 5 item id=m2 n=1 reference=w:4 state=DISPATCHED token=k22
1112 w 5 item id=m4 n=1 reference=w:5 state=DISPATCHED token=k42
1112 w 5 item id=m6 n=1 reference=w:6 state=DISPATCHED token=k62
1113 w 5 row id=m2 n=1 no=2 recorded=DISPATCHED
1113 w 5 row id=m4 n=1 no=2 recorded=DISPATCHED
1113 w 5 row id=m6 n=1 no=1 recorded=DISPATCHED
1113 w 5 ok n=1
1114 w 5 commit
1115 w 5 ended as=committed
2000 d 0 message id=m1 queue=plain tag=t1
2000 d 0 message id=m2 number=1 partition_key=a queue=numbered tag=t2
2000 d 0 message id=m4 key=k queue=plain tag=t4
2000 d 0 message id=m5 number=2 partition_key=a queue=numbered tag=t5
2000 d 0 message id=m6 number=3 partition_key=a queue=numbered replay_of=m5 tag=t5
2000 d 0 message id=m8 queue=plain tag=t8
2000 d 0 attempt created_at=62 error_code=RELEASES_EXHAUSTED id=m8 no=1 state=RETRYABLE token=k8 worker=u
2000 d 0 attempt created_at=212 error_code=LEASE_BROKEN error_message=hangs id=m8 no=2 state=ZOMBIE_REQUEUE token=k82 worker=u
2000 d 0 attempt created_at=230 id=m8 no=3 reference=u:1 state=DISPATCHED token=k83 worker=u
2000 d 0 attempt created_at=42 id=m1 no=1 reference=w:1 state=DISPATCHED token=k1 worker=w
2000 d 0 attempt created_at=44 id=m2 no=1 reference=w:2 state=RETRYABLE token=k2 worker=w
2000 d 0 attempt created_at=1112 id=m2 no=2 reference=w:4 state=DISPATCHED token=k22 worker=w
2000 d 0 attempt created_at=1101 error_code=LEASE_EXPIRED id=m4 no=1 state=ZOMBIE_REQUEUE token=k4 worker=w
2000 d 0 attempt created_at=1112 id=m4 no=2 reference=w:5 state=DISPATCHED token=k42 worker=w
2000 d 0 attempt created_at=47 error_code=CANCELLED error_message=no id=m5 no=1 state=FAILED token=k5 worker=w
2000 d 0 attempt created_at=1112 id=m6 no=1 reference=w:6 state=DISPATCHED token=k62 worker=w
2000 d 0 audit event=LEASE_CLAIMED id=m1 no=1 queue=plain worker=w
2000 d 0 audit event=LEASE_CLAIMED id=m2 no=1 queue=numbered worker=w
2000 d 0 audit event=LEASE_CLAIMED id=m4 no=1 queue=plain worker=w
2000 d 0 audit event=LEASE_CLAIMED id=m5 no=1 queue=numbered worker=w
2000 d 0 audit event=ATTEMPT_COMPLETED id=m1 no=1 queue=plain worker=w
2000 d 0 audit event=ATTEMPT_COMPLETED id=m2 no=1 queue=numbered worker=w
2000 d 0 audit event=LEASE_LOST_REFUSED id=m1 queue=plain worker=w
2000 d 0 audit event=MESSAGE_CANCELLED id=m5 no=1 queue=numbered
2000 d 0 audit event=MESSAGE_REPLAYED id=m5 queue=numbered replay=m6
2000 d 0 audit event=LEASE_CLAIMED id=m6 no=1 queue=numbered worker=v
2000 d 0 audit event=LEASE_RENEWED id=m6 no=1 queue=numbered worker=v
2000 d 0 audit event=LEASE_RELEASED id=m6 no=1 queue=numbered worker=v
2000 d 0 audit event=LEASE_CLAIMED id=m8 no=1 queue=plain worker=u
2000 d 0 audit event=LEASE_RELEASED id=m8 no=1 queue=plain worker=u
2000 d 0 audit event=LEASE_CLAIMED id=m8 no=2 queue=plain worker=u
2000 d 0 audit event=LEASE_BROKEN id=m8 no=2 queue=plain
2000 d 0 audit event=LEASE_CLAIMED id=m8 no=3 queue=plain worker=u
2000 d 0 audit event=ATTEMPT_COMPLETED id=m8 no=3 queue=plain worker=u
2000 d 0 audit event=LEASE_EXPIRED_REPAIRED id=m4 no=1 queue=plain worker=r
2000 d 0 audit event=LEASE_CLAIMED id=m2 no=2 queue=numbered worker=w
2000 d 0 audit event=LEASE_CLAIMED id=m4 no=2 queue=plain worker=w
2000 d 0 audit event=LEASE_CLAIMED id=m6 no=1 queue=numbered worker=w
2000 d 0 audit event=ATTEMPT_COMPLETED id=m2 no=2 queue=numbered worker=w
2000 d 0 audit event=ATTEMPT_COMPLETED id=m4 no=2 queue=plain worker=w
2000 d 0 audit event=ATTEMPT_COMPLETED id=m6 no=1 queue=numbered worker=w
2900 d 0 queue queue=f max_attempts=9 on_dead_head=block ordering=fifo
3000 fp 1 begin auto=1
3000 fp 1 call n=1 verb=enqueue_batch
3000 fp 1 item n=1 partition_key=x queue=f tag=f1
3000 fp 1 item n=1 partition_key=x queue=f tag=f2
3000 fp 1 item n=1 partition_key=x queue=f tag=f3
3001 fp 1 row n=1 created=1 id=f1 number=1
3001 fp 1 row n=1 created=1 id=f2 number=2
3001 fp 1 row n=1 created=1 id=f3 number=3
3001 fp 1 ok n=1
3010 fw 1 begin auto=1
3010 fw 1 call batch=2 n=1 verb=claim worker=fw
3011 fw 1 row expires=9000 id=f1 n=1 tag=f1 token=a1
3011 fw 1 row expires=9000 id=f2 n=1 tag=f2 token=a2
3011 fw 1 ok n=1
3020 fw 2 begin auto=1
3020 fw 2 call n=1 verb=complete worker=fw
3020 fw 2 item id=f1 n=1 reference=fw:1 state=RETRYABLE token=a1
3021 fw 2 row n=1 no=1 recorded=RETRYABLE
3021 fw 2 ok n=1
3030 fw 3 begin auto=1
3030 fw 3 call batch=2 n=1 verb=claim worker=fw
3031 fw 3 row expires=9000 id=f1 n=1 tag=f1 token=b1
3031 fw 3 row expires=9000 id=f2 n=1 tag=f2 token=b2
3031 fw 3 ok n=1
3040 fv 1 begin auto=0
3040 fv 1 call n=1 verb=complete worker=fw
3040 fv 1 item id=f1 n=1 reference=fw:2 state=DISPATCHED token=b1
3041 fv 1 row n=1 no=2 recorded=DISPATCHED
3041 fv 1 ok n=1
3042 fv 1 commit
3043 fv 1 ended as=committed
3050 fw 5 begin auto=1
3050 fw 5 call n=1 verb=complete worker=fw
3050 fw 5 item id=f2 n=1 reference=fw:3 state=FAILED token=b2
3051 fw 5 row n=1 no=1 recorded=FAILED
3051 fw 5 ok n=1
3060 fo 1 begin auto=1
3060 fo 1 call n=1 partition_key=x queue=f verb=unblock
3061 fo 1 row id=f2 n=1
3061 fo 1 ok n=1
3070 fw 6 begin auto=1
3070 fw 6 call batch=2 n=1 verb=claim worker=fw
3071 fw 6 row expires=9000 id=f3 n=1 tag=f3 token=c3
3071 fw 6 ok n=1
3080 fw 7 begin auto=1
3080 fw 7 call n=1 verb=complete worker=fw
3080 fw 7 item id=f3 n=1 reference=fw:4 state=DISPATCHED token=c3
3081 fw 7 row n=1 no=1 recorded=DISPATCHED
3081 fw 7 ok n=1
3900 d 0 message id=f1 number=1 partition_key=x queue=f tag=f1
3900 d 0 message id=f2 number=2 partition_key=x queue=f tag=f2
3900 d 0 message id=f3 number=3 partition_key=x queue=f tag=f3
3900 d 0 attempt created_at=3020 id=f1 no=1 reference=fw:1 state=RETRYABLE token=a1 worker=fw
3900 d 0 attempt created_at=3040 id=f1 no=2 reference=fw:2 state=DISPATCHED token=b1 worker=fw
3900 d 0 attempt created_at=3050 id=f2 no=1 reference=fw:3 state=FAILED token=b2 worker=fw
3900 d 0 attempt created_at=3080 id=f3 no=1 reference=fw:4 state=DISPATCHED token=c3 worker=fw
)";

// All lines with the first text in them; replaced by the second, or gone where it is empty.
struct Edit {
	std::string from, to;
};

std::string
edited(const std::vector<Edit> &edits)
{
	std::istringstream in(right);
	std::string line, text;
	std::vector<bool> used(edits.size());

	while (std::getline(in, line))
	{
		for (size_t i = 0; i < edits.size(); i++)
		{
			size_t at = line.find(edits[i].from);

			if (at == std::string::npos)
				continue;
			used[i] = true;
			line = edits[i].to.empty() ? "" : line.replace(at, edits[i].from.size(), edits[i].to);
		}
		text += line + "\n";
	}
	EXPECT_EQ(std::count(used.begin(), used.end(), false), 0) << "an edit changes nothing";
	return text;
}

Violations
check_text(std::string text)
{
	std::replace(text.begin(), text.end(), ' ', '\t');

	std::istringstream in(text);
	std::vector<Event> events = read_events(in);

	std::stable_sort(events.begin(), events.end(), [](const Event &a, const Event &b) { return a.at < b.at; });

	History history = history_of(events);

	return check(history);
}

std::string
told(const Violations &found)
{
	std::string text;

	for (const Violation &one : found)
		text += one.rule + ": " + one.what + "\n";
	return text;
}

struct Case {
	const char *name;
	std::vector<Edit> edits;
	const char *more;     // lines
	const char *expected; // of what is told; nothing: all is right
};

void
PrintTo(const Case &one, std::ostream *out)
{
	*out << one.name;
}

class Checks : public testing::TestWithParam<Case> {};

TEST_P(Checks, Say)
{
	const Case &one = GetParam();
	std::string found = told(check_text(edited(one.edits) + one.more));

	if (*one.expected == '\0')
		EXPECT_EQ(found, "");
	else
		EXPECT_NE(found.find(one.expected), std::string::npos) << "told:\n" << found;
}

const Case messages[] = {
	{"Right", {}, "", ""},
	{"Lost", {{"message id=m1", ""}, {"id=m1 no=1 reference", ""}}, "", "a committed message is lost"},
	{"LostPrepared", {{"message id=m5", ""}}, "", "a committed message is lost"},
	{"RolledBackIsThere", {}, "2000 d 0 message id=m3 queue=plain tag=t3\n", "there that was not committed"},
	{"SavepointIsThere",
	 {{"15 p2 1 commit", "14 p2 1 undone from=1\n15 p2 1 commit"}},
	 "",
	 "there that was not committed"},
	{"Nobodys", {}, "2000 d 0 message id=m9 queue=plain tag=t9\n", "nobody enqueued"},
	{"RefusedIsThere",
	 {{"12 p 1 row", ""}, {"12 p 1 ok n=1", "12 p 1 error n=1 sqlstate=57014"}},
	 "",
	 "there that was not committed"},
	{"Twice", {}, "2000 d 0 message id=m9 queue=plain tag=t1\n", "a message is there twice"},
	{"OtherTag",
	 {{"message id=m1 queue=plain tag=t1", "message id=m1 queue=numbered tag=t1"}},
	 "",
	 "not what was enqueued"},
	{"SeenUncommitted",
	 {{"id=m6 n=1 tag=t5 token=k6", "id=m3 n=1 tag=t3 token=k6"}},
	 "",
	 "got a message that was not committed"},
	{"SeenBeforeCommit",
	 {{"15 p2 1 commit", "42 p2 1 commit"}, {"16 p2 1 ended", "43 p2 1 ended"}},
	 "",
	 "before its commit"},
	{"SeenBeforeCommitPrepared", {{"27 f 1", "42 f 1"}, {"28 f 1", "43 f 1"}}, "", "before its commit"},
	{"OtherPayload", {{"id=m1 n=1 tag=t1 token=k1", "id=m1 n=1 tag=t2 token=k1"}}, "", "got another payload"},
	{"Pending", {{"attempt created_at=42", "pending id=m1"}}, "", "did not end"},
	{"Left", {}, "1999 d 0 left id=m1\n", "next claim did not return it"},
	// Nobody was told how it ended: both ways are right, but not half of each.
	{"UnknownDone", {{"16 p2 1 ended as=committed", ""}}, "", ""},
	{"UnknownUndone",
	 {{"12 p 1 row", ""},
	  {"12 p 1 ok", ""},
	  {"message id=m1", ""},
	  {"id=m1 no=1 reference", ""},
	  {"id=m1 n=1 tag=t1", ""},
	  {" w 2 ", ""},
	  {"id=m1 n=1 reference=w:3", ""},
	  {"error=P7002", ""},
	  {" id=m1 no=1 queue=plain", ""},
	  {"LEASE_LOST_REFUSED", ""}},
	 "",
	 ""},
	{"UnknownHalf",
	 {{"1115 w 5 ended", ""}, {"id=m6 no=1 reference=w:6", "id=m6 no=1 reference=w:7"}},
	 "",
	 "only a part of a transaction"},
	{"UnknownNotCommitted", {{"15 p2 1 commit", ""}, {"16 p2 1 ended", ""}}, "", "there that was not committed"},
};

// What a transaction sees of its replay_many.
const char *const told_replays = "51 o 2 ok n=1\n51 o 2 call n=2 verb=replayed\n51 o 2 row id=m5 n=2 replay=m6\n"
								 "51 o 2 ok n=2\n51 o 2 commit\n52 o 2 ended as=committed";

const Case keys_numbers_replays[] = {
	{"TwoOfAKey",
	 {{"created=0 id=m4", "created=1 id=m9"}},
	 "2000 d 0 message id=m9 key=k queue=plain tag=t4b\n",
	 "keys: two messages of k"},
	{"OtherAnswer", {{"created=0 id=m4", "created=0 id=m1"}}, "", "k was answered with a message that is not its own"},
	{"AnswerOfNothing",
	 {{"created=0 id=m4", "created=0 id=m3"}},
	 "",
	 "k was answered with a message that is not its own"},
	{"Gap", {{"id=m2 number=1", "id=m2 number=4"}}, "", "number 1 of a is missing"},
	{"SameNumber", {{"number=2", "number=1"}}, "", "number 2 of a is missing"},
	{"NoNumber", {{"message id=m2 number=1", "message id=m2"}}, "", "a key without a number"},
	{"TooEarly",
	 {{"15 p2 1 commit", "26 p2 1 commit"}, {"16 p2 1 ended", "27 p2 1 ended"}},
	 "",
	 "given before one below it was committed"},
	{"ReplayLost", {{"message id=m6", ""}}, "", "a committed replay is lost"},
	{"ReplayedTwice",
	 {},
	 "2000 d 0 message id=m7 number=4 partition_key=a queue=numbered replay_of=m5 tag=t5\n",
	 "replayed twice"},
	{"NobodyReplayed", {{"50 o 2 call id=m5", "50 o 2 call id=m1"}}, "", "nobody asked for this replay"},
	{"ReplayMany",
	 {{"50 o 2 begin auto=1", "50 o 2 begin auto=0"},
	  {"50 o 2 call id=m5 n=1 verb=replay", "50 o 2 call n=1 verb=replay_many"},
	  {"51 o 2 row id=m6 n=1", "51 o 2 row done=1 n=1"},
	  {"51 o 2 ok n=1", told_replays}},
	 "",
	 ""},
	{"ReplayManyMore",
	 {{"50 o 2 begin auto=1", "50 o 2 begin auto=0"},
	  {"50 o 2 call id=m5 n=1 verb=replay", "50 o 2 call n=1 verb=replay_many"},
	  {"51 o 2 row id=m6 n=1", "51 o 2 row done=2 n=1"},
	  {"51 o 2 ok n=1", told_replays}},
	 "",
	 "replay_many told of another number than it replayed"},
	{"ReplayUndone",
	 {{"51 o 2 ok n=1", "51 o 2 error n=1 sqlstate=57014"}},
	 "",
	 "a replay is there that was not committed"},
};

const Case ledger_reports[] = {
	{"AttemptGap", {{"id=m1 no=1 reference", "id=m1 no=2 reference"}}, "", "attempts do not count"},
	{"NoOutcome",
	 {{"no=1 reference=w:1 state=DISPATCHED", "no=1 reference=w:1 state=RETRYABLE"}},
	 "",
	 "neither pending nor has it ended"},
	{"TwoOutcomes",
	 {{"no=1 reference=w:2 state=RETRYABLE", "no=1 reference=w:2 state=FAILED"}},
	 "",
	 "more than one outcome"},
	{"OverCeiling", {{"max_attempts=3", "max_attempts=1"}}, "", "more attempts than max_attempts"},
	{"NoMessage", {{"message id=m1", ""}}, "", "attempts without their message"},
	{"AcceptedNotThere",
	 {{"id=m2 no=1 reference", ""}, {"id=m2 no=2 reference", "id=m2 no=1 reference"}},
	 "",
	 "an accepted report is not in the ledger"},
	{"OtherState",
	 {{"45 w 3 row id=m2 n=1 no=1 recorded=RETRYABLE", "45 w 3 row id=m2 n=1 no=1 recorded=FAILED"}},
	 "",
	 "otherwise than it was answered"},
	{"OtherThanMade",
	 {{"id=m1 n=1 reference=w:1 state=DISPATCHED", "id=m1 n=1 reference=w:1 state=FAILED"}},
	 "",
	 "otherwise than it was made"},
	{"RefusedIsThere",
	 {{"id=m1 no=1 reference=w:1", "id=m1 no=1 reference=w:3"}},
	 "",
	 "a refused report is in the ledger"},
	{"RolledBackIsThere",
	 {{"1114 w 5 commit", "1114 w 5 rollback"}, {"1115 w 5 ended as=committed", "1115 w 5 ended as=rolledback"}},
	 "",
	 "a report is in the ledger that was not committed"},
	{"NobodyReported", {{"id=m1 no=1 reference=w:1", "id=m1 no=1 reference=w:9"}}, "", "nobody reported this attempt"},
	{"ToldOfNothing",
	 {{"row error=P7002 id=m1 n=1 no=1 recorded=DISPATCHED", "row error=P7002 id=m1 n=1 no=1 recorded=FAILED"}},
	 "",
	 "told of an attempt that is not there"},
	{"CancelNotThere", {{"error_message=no", "error_message=other"}}, "", "a cancelled message has no such attempt"},
	{"NobodyCancelled",
	 {{"48 o 1 commit", "48 o 1 rollback"}, {"49 o 1 ended as=committed", "49 o 1 ended as=rolledback"}},
	 "",
	 "nobody cancelled"},
	{"CancelMany",
	 {{"call id=m5 n=1 reason=no verb=cancel", "call n=1 reason=no verb=cancel_many"},
	  {"47 o 1 row n=1 no=1", "47 o 1 row done=1 n=1"}},
	 "",
	 ""},
	{"CancelManyMore",
	 {{"call id=m5 n=1 reason=no verb=cancel", "call n=1 reason=no verb=cancel_many"},
	  {"47 o 1 row n=1 no=1", "47 o 1 row done=2 n=1"}},
	 "",
	 "cancel_many told of another number than it cancelled"},
	{"CancelManyUndone",
	 {{"call id=m5 n=1 reason=no verb=cancel", "call n=1 reason=no verb=cancel_many"},
	  {"47 o 1 row n=1 no=1", "47 o 1 row done=1 n=1"},
	  {"48 o 1 commit", "48 o 1 rollback"},
	  {"49 o 1 ended as=committed", "49 o 1 ended as=rolledback"}},
	 "",
	 "nobody cancelled"},
	{"BrokenNotThere", {{"error_message=hangs", "error_message=other"}}, "", "a broken lease has no such attempt"},
	{"NobodyBroke",
	 {{"213 o2 2 row", ""}, {"213 o2 2 ok n=1", "213 o2 2 error n=1 sqlstate=57014"}},
	 "",
	 "nobody broke this lease"},
	{"NobodyReleased", {{"item id=m8 n=1 token=k8", "item id=m8 n=1 token=k9"}}, "", "nobody released this lease"},
	{"ReleaseUnknown", {{"63 u 2", ""}}, "", ""},
	{"ReleaseEndedNothing", {{"row id=m8 n=1 next_attempt_at=x", "row id=m8 n=1"}}, "", "as it was answered"},
	{"ReleaseEnds",
	 {{"no=1 state=RETRYABLE token=k8", "no=1 state=FAILED token=k8"}},
	 "",
	 "a release is not in the ledger as it was answered"},
	{"ReleaseNotLimited", {{" max_releases=0", ""}}, "", "a release counted as a try too early"},
	{"ReleaseTooEarly", {{"max_releases=0", "max_releases=1"}}, "", "a release counted as a try too early"},
	{"ReleaseInTime",
	 {{"max_releases=0", "max_releases=1"}},
	 "58 u9 1 begin auto=1\n58 u9 1 call n=1 verb=release worker=u\n58 u9 1 item id=m8 n=1 token=k80\n",
	 ""},
	{"ReleaseTooLate",
	 {{"error_code=RELEASES_EXHAUSTED", ""},
	  {"213 o2 2 row n=1 no=2", "213 o2 2 row n=1 no=1"},
	  {"error_message=hangs id=m8 no=2", "error_message=hangs id=m8 no=1"},
	  {"231 u 5 row n=1 no=3", "231 u 5 row n=1 no=2"},
	  {"id=m8 no=3", "id=m8 no=2"}},
	 "",
	 "more releases than max_releases, and none of them a try"},
	{"RepairNotThere", {{"row id=m4 lost_by=w", "row id=m4 lost_by=v"}}, "", "a repair is not in the ledger"},
};

const Case leases[] = {
	{"SameToken", {{"tag=t5 token=k62", "tag=t5 token=k1"}}, "", "one token for two leases"},
	{"EndedTwice",
	 {},
	 "2000 d 0 attempt created_at=1200 id=m6 no=2 reference=w:6 state=RETRYABLE token=k62 "
	 "worker=w\n",
	 "a lease ended twice"},
	{"GivenBackAndLost",
	 {{"id=m6 no=1 reference=w:6 state=DISPATCHED token=k62",
	   "error_code=LEASE_EXPIRED id=m6 no=1 state=FAILED token=k6"}},
	 "",
	 "a lease ended twice"},
	{"NoTrace", {{"58 v 3", ""}, {"59 v 3", ""}}, "", "a lease left no trace"},
	{"NoTraceSynchronous", {{"58 v 3", ""}, {"59 v 3", ""}}, "70 d 0 crash from=60\n", "a lease left no trace"},
	{"AsyncTakenBack",
	 {{"54 v 1 begin auto=1", "54 v 1 begin async=1 auto=1"},
	  {" v 2 ", ""},
	  {" v 3 ", ""},
	  {"audited queue=numbered", ""},
	  {"queue=numbered worker=", ""}},
	 "70 d 0 crash from=60\n",
	 ""},
	{"AsyncNoCrash",
	 {{"54 v 1 begin auto=1", "54 v 1 begin async=1 auto=1"}, {" v 2 ", ""}, {" v 3 ", ""}},
	 "50 d 0 crash from=40\n",
	 "a lease left no trace"},
	{"AsyncMadeDurable",
	 {{"54 v 1 begin auto=1", "54 v 1 begin async=1 auto=1"}, {" v 2 ", ""}, {" v 3 ", ""}},
	 "1300 d 0 crash from=1200\n",
	 "a lease left no trace"},
	{"RolledBackLease",
	 {{"40 w 1 begin auto=1", "40 w 1 begin auto=0"}},
	 "",
	 "a lease that was rolled back changed something"},
	{"OthersToken",
	 {{"reference=w:1 state=DISPATCHED token=k1 worker=w", "reference=w:1 state=DISPATCHED token=k2 worker=w"}},
	 "",
	 "an attempt under another's token"},
	{"TakenBackEarly", {{"created_at=1101", "created_at=900"}}, "", "a lease was taken back before its time"},
	{"TakenBackEarlyRenewed",
	 {{"id=m6 no=1 reference=w:6 state=DISPATCHED token=k62",
	   "error_code=LEASE_EXPIRED id=m6 no=1 state=FAILED token=k6"},
	  {"created_at=1112 error_code", "created_at=1007 error_code"}},
	 "",
	 "a lease was taken back before its time"},
	{"AcceptedLate",
	 {{"1111 w 4 row expires=2000 id=m2", "1111 w 4 row expires=1112 id=m2"}},
	 "",
	 "a report was accepted though the lease was over"},
	{"AcceptedLateByOtherClock",
	 {},
	 "60 d 0 clock from=90000000 to=90000000\n",
	 "a report was accepted though the lease was over"},
	{"InDoubtByAStep",
	 {{"1111 w 4 row expires=2000 id=m2", "1111 w 4 row expires=1112 id=m2"}},
	 "60 d 0 clock from=0 to=100\n",
	 ""},
	{"StaleAccepted",
	 {},
	 "1120 v 9 begin auto=1\n1120 v 9 call n=1 verb=renew worker=v\n1120 v 9 item id=m6 n=1 "
	 "token=k6\n1121 v 9 row expires=3000 id=m6 n=1\n1121 v 9 ok n=1\n",
	 "a stale token was accepted: a renewal"},
	{"TwoAtATime",
	 {{"id=m2 no=1 reference=w:2 state=RETRYABLE token=k2", "id=m2 no=1 reference=w:2 state=RETRYABLE token=k22"},
	  {"id=m2 no=2 reference=w:4 state=DISPATCHED token=k22", "id=m2 no=2 reference=w:4 state=DISPATCHED token=k2"}},
	 "",
	 "two leases at a time"},
	{"UsedBroken",
	 {},
	 "214 u9 1 begin auto=1\n214 u9 1 call n=1 verb=renew worker=u\n214 u9 1 item id=m8 n=1 token=k82\n"
	 "215 u9 1 row expires=1300 id=m8 n=1\n215 u9 1 ok n=1\n",
	 "a broken lease was used: a renewal"},
	{"RescheduledLeased",
	 {},
	 "222 o3 1 begin auto=1\n222 o3 1 call id=m8 n=1 verb=reschedule\n223 o3 1 row due=223 n=1\n223 o3 1 ok n=1\n",
	 "a leased message was rescheduled"},
	{"LeasedEarly", {{"due=200", "due=900"}}, "", "a message was leased before it was due"},
	{"RescheduledTwice",
	 {{"due=200", "due=900"}},
	 "66 o3 1 begin auto=1\n66 o3 1 call id=m8 n=1 verb=reschedule\n67 o3 1 row due=100 n=1\n67 o3 1 ok n=1\n",
	 ""},
	{"NobodysLease", {{"41 w 1 row expires=1000 id=m4", ""}}, "", "nobody was given this lease"},
	{"LeaseOfLostAnswer",
	 {{"41 w 1 row expires=1000 id=m4", ""}},
	 "43 w 9 begin auto=1\n43 w 9 call batch=1 n=1 verb=claim worker=w\n",
	 ""},
	{"MoreThanAsked", {{"batch=9", "batch=2"}}, "", "more leases than asked"},
};

const Case pauses[] = {
	{"Paused",
	 {{"id=m4 n=1 tag=t4 token=k42", "id=m4 n=1 queue=plain tag=t4 token=k42"}},
	 "1105 o 5 begin auto=1\n1105 o 5 call n=1 queue=plain verb=pause\n1106 o 5 ok n=1\n1120 o 6 "
	 "begin auto=1\n1120 o 6 call n=1 queue=plain verb=resume\n1121 o 6 ok n=1\n",
	 "a lease of a paused queue"},
	{"Resumed",
	 {{"id=m4 n=1 tag=t4 token=k42", "id=m4 n=1 queue=plain tag=t4 token=k42"}},
	 "1105 o 5 begin auto=1\n1105 o 5 call n=1 queue=plain verb=pause\n1106 o 5 ok n=1\n1108 o 6 "
	 "begin auto=1\n1108 o 6 call n=1 queue=plain verb=resume\n1109 o 6 ok n=1\n",
	 ""},
};

const Case limits[] = {
	{"TooMany", {{"max_in_flight=2", "max_in_flight=1"}}, "", "more leases at a time than max_in_flight"},
	{"UntilItMayHaveExpired",
	 {{"max_in_flight=2", "max_in_flight=1"}, {"row expires=1000 id=m4", "row expires=41 id=m4"}},
	 "",
	 ""},
};

const Case others[] = {
	{"CounterFalls", {{"enqueued=6", "enqueued=4"}}, "", "enqueued of queue plain fell from 5 to 4"},
	{"CounterReset",
	 {{"enqueued=6 n=1 queue=plain stats_reset=x", "enqueued=0 n=1 queue=plain stats_reset=y"}},
	 "",
	 ""},
	{"BadError",
	 {{"12 p 1 row", ""}, {"12 p 1 ok n=1", "12 p 1 error n=1 sqlstate=40001"}},
	 "",
	 "enqueue failed with 40001"},
	{"ClaimWaited", {{"55 v 1 ok n=1", "55 v 1 error n=1 sqlstate=55P03"}}, "", "claim failed with 55P03"},
	{"BadItem", {{"row error=P7002", "row error=23505"}}, "", "complete_batch answered with 23505"},
	{"BadCommit",
	 {{"16 p2 1 ended as=committed", "16 p2 1 ended as=error sqlstate=40001"}},
	 "",
	 "a transaction's end failed with 40001"},
};

std::string
name_of(const testing::TestParamInfo<Case> &info)
{
	return info.param.name;
}

// f1 and f2 are leased together; f2 is given back with f1, dies as the head, and blocks f3.
const Case order[] = {
	{"LeasedEarly",
	 {{"3042 fv 1 commit", "3072 fv 1 commit"}, {"3043 fv 1", "3073 fv 1"}},
	 "",
	 "leased before an earlier one"},
	{"LeasedEarlyOfRollback",
	 {{"3042 fv 1 commit", "3042 fv 1 rollback"}, {"3043 fv 1 ended as=committed", "3043 fv 1 ended as=rolledback"}},
	 "",
	 "reported before an earlier one"},
	{"LeasedAlone", {{"3011 fw 1 row expires=9000 id=f1", ""}}, "", "leased before an earlier one"},
	{"OfNoOrder",
	 {{"ordering=fifo", "ordering=numbered"},
	  {"3042 fv 1 commit", "3072 fv 1 commit"},
	  {"3043 fv 1", "3073 fv 1"},
	  {"3011 fw 1 row expires=9000 id=f2", ""}},
	 "",
	 ""},
	{"ReportedEarly",
	 {{"3042 fv 1 commit", "3052 fv 1 commit"}, {"3043 fv 1", "3053 fv 1"}},
	 "",
	 "reported before an earlier one"},
	{"NotGivenBack",
	 {{"item id=f2 n=1 reference=fw:3 state=FAILED token=b2", "item id=f2 n=1 reference=fw:3 state=FAILED token=a2"},
	  {"state=FAILED token=b2", "state=FAILED token=a2"}},
	 "",
	 "under a lease that had been given back"},
	{"OutOfOrder",
	 {{"row expires=9000 id=f1 n=1 tag=f1 token=a1", "row expires=9000 id=f9 n=1 tag=f2 token=a1"},
	  {"row expires=9000 id=f2 n=1 tag=f2 token=a2", "row expires=9000 id=f1 n=1 tag=f1 token=a2"},
	  {"row expires=9000 id=f9 n=1 tag=f2 token=a1", "row expires=9000 id=f2 n=1 tag=f2 token=a1"}},
	 "",
	 "out of order"},
	{"Blocked", {{" fo 1 ", ""}}, "", "behind a dead head"},
	{"BlockedUntilLater", {{"3060 fo 1", "3075 fo 1"}, {"3061 fo 1", "3076 fo 1"}}, "", "behind a dead head"},
	{"UnblockedByReplayInVain",
	 {{"call n=1 partition_key=x queue=f verb=unblock", "call id=f2 n=1 verb=replay"},
	  {"3061 fo 1 row", ""},
	  {"3061 fo 1 ok n=1", "3061 fo 1 error n=1 sqlstate=57014"}},
	 "",
	 "behind a dead head"},
	{"UnblockedByNobodyKnows", {{"3061 fo 1", ""}}, "", ""},
	{"Cancelled",
	 {{" fo 1 ", ""},
	  {"3050 fw 5 call n=1 verb=complete worker=fw", "3050 fw 5 call id=f2 n=1 reason=no verb=cancel"},
	  {"3050 fw 5 item", ""},
	  {"3051 fw 5 row n=1 no=1 recorded=FAILED", "3051 fw 5 row n=1 no=1"},
	  {"created_at=3050 id=f2 no=1 reference=fw:3",
	   "created_at=3050 error_code=CANCELLED error_message=no id=f2 no=1"}},
	 "3900 d 0 audit event=MESSAGE_CANCELLED id=f2 no=1 queue=f\n",
	 ""},
	{"Continues", {{" fo 1 ", ""}, {"on_dead_head=block", "on_dead_head=continue"}}, "", ""},
};

// A few of each kind: too few, too many, another one.
const Case events[] = {
	{"ClaimUntold", {{"audit event=LEASE_CLAIMED id=m1", ""}}, "", "told more than there is LEASE_CLAIMED"},
	{"ClaimTakenBack",
	 {{"54 v 1 begin auto=1", "54 v 1 begin async=1 auto=1"},
	  {" v 2 ", ""},
	  {" v 3 ", ""},
	  {"queue=numbered worker=v", ""}},
	 "70 d 0 crash from=60\n",
	 "told more than there is LEASE_CLAIMED"},
	{"ClaimOfNobody",
	 {},
	 "2000 d 0 audit event=LEASE_CLAIMED id=m1 no=1 queue=plain worker=x\n",
	 "LEASE_CLAIMED of what no client has done"},
	{"ClaimUndone",
	 {{"60 u 1 begin auto=1", "60 u 1 begin auto=0"},
	  {"61 u 1 ok n=1", "61 u 1 rollback"},
	  {" u 2 ", ""},
	  {"id=m8 no=1 state=RETRYABLE", ""}},
	 "",
	 "LEASE_CLAIMED of what no client has done"},
	{"ClaimOfAnotherTry",
	 {{"audit event=LEASE_CLAIMED id=m8 no=2", "audit event=LEASE_CLAIMED id=m8 no=1"}},
	 "",
	 "LEASE_CLAIMED names another attempt"},
	{"ClaimWhoseAnswerIsLost",
	 {},
	 "2000 x 1 begin auto=1\n2000 x 1 call batch=1 n=1 verb=claim worker=x\n"
	 "2000 d 0 audit event=LEASE_CLAIMED id=m1 no=1 queue=plain worker=x\n",
	 ""},
	{"TwoClaimsWhoseAnswerIsLost",
	 {},
	 "2000 x 1 begin auto=1\n2000 x 1 call batch=1 n=1 verb=claim worker=x\n"
	 "2000 d 0 audit event=LEASE_CLAIMED id=m1 no=1 queue=plain worker=x\n"
	 "2000 d 0 audit event=LEASE_CLAIMED id=m4 no=1 queue=plain worker=x\n",
	 "LEASE_CLAIMED of what no client has done"},
	{"ClaimInAnotherQueue",
	 {{"LEASE_CLAIMED id=m1 no=1 queue=plain", "LEASE_CLAIMED id=m1 no=1 queue=numbered"}},
	 "",
	 "names another queue"},
	{"NotAudited",
	 {},
	 "3900 d 0 audit event=ATTEMPT_COMPLETED id=f1 no=1 queue=f worker=fw\n",
	 "of a queue that is not audited"},
	{"RenewalUntold", {{"LEASE_RENEWED", ""}}, "", "told more than there is LEASE_RENEWED"},
	{"RenewalUndone",
	 {{"56 v 2 begin auto=1", "56 v 2 begin auto=0"}, {"57 v 2 ok n=1", "57 v 2 rollback"}},
	 "",
	 "LEASE_RENEWED of what no client has done"},
	{"RenewalOfAnother",
	 {{"LEASE_RENEWED id=m6 no=1 queue=numbered worker=v", "LEASE_RENEWED id=m6 no=1 queue=numbered worker=w"}},
	 "",
	 "told more than there is LEASE_RENEWED"},
	{"ReleaseUntold", {{"LEASE_RELEASED id=m8", ""}}, "", "told more than there is LEASE_RELEASED"},
	{"ReleaseTwice",
	 {},
	 "2000 d 0 audit event=LEASE_RELEASED id=m8 no=1 queue=plain worker=u\n",
	 "LEASE_RELEASED of what no client has done"},
	{"ReportUntold", {{"ATTEMPT_COMPLETED id=m4", ""}}, "", "an attempt without its ATTEMPT_COMPLETED"},
	{"ReportTwice",
	 {},
	 "2000 d 0 audit event=ATTEMPT_COMPLETED id=m4 no=2 queue=plain worker=w\n",
	 "ATTEMPT_COMPLETED of no such attempt"},
	{"ReportOfAnother",
	 {{"ATTEMPT_COMPLETED id=m4 no=2 queue=plain worker=w", "ATTEMPT_COMPLETED id=m4 no=2 queue=plain worker=x"}},
	 "",
	 "ATTEMPT_COMPLETED names another worker"},
	{"LossUntold", {{"LEASE_EXPIRED_REPAIRED", ""}}, "", "an attempt without its LEASE_EXPIRED_REPAIRED"},
	{"LossOfAnotherTry",
	 {{"LEASE_EXPIRED_REPAIRED id=m4 no=1", "LEASE_EXPIRED_REPAIRED id=m4 no=2"}},
	 "",
	 "LEASE_EXPIRED_REPAIRED of no such attempt"},
	{"RefusalUntold", {{"LEASE_LOST_REFUSED", ""}}, "", "told more than there is LEASE_LOST_REFUSED"},
	{"RefusalOfNobody",
	 {},
	 "2000 d 0 audit event=LEASE_LOST_REFUSED id=m4 queue=plain worker=w\n",
	 "LEASE_LOST_REFUSED of what no client has done"},
	{"RefusalThatRaises",
	 {},
	 "1200 y 1 begin auto=0\n1200 y 1 call n=1 verb=complete worker=y\n"
	 "1200 y 1 item id=m4 n=1 reference=y:1 state=FAILED token=k4\n1201 y 1 error n=1 sqlstate=P7002\n1202 y 1 rollback\n"
	 "1203 y 1 ended as=rolledback\n2000 d 0 audit event=LEASE_LOST_REFUSED id=m4 queue=plain worker=y\n",
	 ""},
	{"RefusalThatRaisesUntold",
	 {},
	 "1200 y 1 begin auto=1\n1200 y 1 call n=1 verb=complete worker=y\n"
	 "1200 y 1 item id=m4 n=1 reference=y:1 state=FAILED token=k4\n1201 y 1 error n=1 sqlstate=P7002\n",
	 ""},
	{"EndedAsNobodyWrote",
	 {},
	 "2000 d 0 audit event=TERMINAL_BLOCKED id=m1 queue=plain worker=w\n",
	 "TERMINAL_BLOCKED"},
	{"CancelUntold", {{"MESSAGE_CANCELLED", ""}}, "", "an attempt without its MESSAGE_CANCELLED"},
	{"CancelOfNobody",
	 {},
	 "2000 d 0 audit event=MESSAGE_CANCELLED id=m1 no=1 queue=plain\n",
	 "MESSAGE_CANCELLED of no such attempt"},
	{"BrokenUntold", {{"event=LEASE_BROKEN", ""}}, "", "an attempt without its LEASE_BROKEN"},
	{"ReplayUntold", {{"MESSAGE_REPLAYED", ""}}, "", "a replay without its MESSAGE_REPLAYED"},
	{"ReplayOfNobody",
	 {},
	 "2000 d 0 audit event=MESSAGE_REPLAYED id=m1 queue=plain replay=m7\n",
	 "MESSAGE_REPLAYED without the new message"},
};

INSTANTIATE_TEST_SUITE_P(Events, Checks, testing::ValuesIn(events), name_of);
INSTANTIATE_TEST_SUITE_P(Order, Checks, testing::ValuesIn(order), name_of);
INSTANTIATE_TEST_SUITE_P(Messages, Checks, testing::ValuesIn(messages), name_of);
INSTANTIATE_TEST_SUITE_P(KeysNumbersReplays, Checks, testing::ValuesIn(keys_numbers_replays), name_of);
INSTANTIATE_TEST_SUITE_P(LedgerReports, Checks, testing::ValuesIn(ledger_reports), name_of);
INSTANTIATE_TEST_SUITE_P(Leases, Checks, testing::ValuesIn(leases), name_of);
INSTANTIATE_TEST_SUITE_P(Pauses, Checks, testing::ValuesIn(pauses), name_of);
INSTANTIATE_TEST_SUITE_P(Limits, Checks, testing::ValuesIn(limits), name_of);
INSTANTIATE_TEST_SUITE_P(Others, Checks, testing::ValuesIn(others), name_of);

} // namespace

// dwell.go over the vectors, and its queue against a server that answers as Dwell does.

package dwell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

type vector struct {
	Name, Code                   string
	Options, Headers, Fields     map[string]any
	Body, Secrets, ID, Timestamp string
	Signature                    string
	BodyBase64                   []byte `json:"body_base64"`
	Now                          int64
	Valid                        bool
}

// each runs a test of each vector of a kind.
func each(t *testing.T, kind string, check func(*testing.T, vector)) {
	text, err := os.ReadFile("../vectors/requests.json")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]json.RawMessage
	var vectors []vector
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(all[kind], &vectors); err != nil || len(vectors) == 0 {
		t.Fatalf("%d vectors: %v", len(vectors), err)
	}
	for _, vector := range vectors {
		t.Run(vector.Name, func(t *testing.T) { check(t, vector) })
	}
}

// filled sets the fields of a struct by the names of the vectors: due_ms is DueMS.
func filled[T any](t *testing.T, fields map[string]any) T {
	t.Helper()
	var to T
	into := reflect.ValueOf(&to).Elem()
	for name, value := range fields {
		field := into.FieldByNameFunc(func(known string) bool {
			return strings.EqualFold(known, strings.ReplaceAll(name, "_", ""))
		})
		if !field.IsValid() {
			t.Fatalf("no field for %s", name)
		}
		number, isNumber := value.(float64)
		switch at := field.Addr().Interface().(type) {
		case *int64:
			*at = int64(number)
		case **int64:
			if isNumber {
				n := int64(number)
				*at = &n
			}
		case *[]string:
			*at = []string{}
			for _, wait := range value.([]any) {
				*at = append(*at, written(wait))
			}
		case **string:
			text := value.(string)
			*at = &text
		case *string:
			*at = written(value)
		}
	}
	return to
}

// written is a duration or a time of a vector as text.
func written(value any) string {
	if number, ok := value.(float64); ok {
		return fmt.Sprintf("%.0f", number)
	}
	return value.(string)
}

func same(t *testing.T, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got %#v, want %#v", got, want)
	}
}

func TestOptionsBecomeHeaders(t *testing.T) {
	each(t, "requests", func(t *testing.T, vector vector) {
		headers, err := filled[Request](t, vector.Options).Headers()
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{}
		for name, value := range vector.Headers {
			want[name] = value.(string)
		}
		same(t, headers, want)
	})
}

func TestWhatDwellWouldRejectIsRefused(t *testing.T) {
	each(t, "refused", func(t *testing.T, vector vector) {
		if headers, err := filled[Request](t, vector.Options).Headers(); err == nil {
			t.Fatalf("got %v", headers)
		}
	})
}

func TestHeadersOfADeliveryAreRead(t *testing.T) {
	each(t, "deliveries", func(t *testing.T, vector vector) {
		want := filled[Delivery](t, vector.Fields)
		lists, bytes := http.Header{}, map[string][]byte{}
		for name, value := range vector.Headers {
			lists.Set(name, written(value))
			bytes[name] = []byte(written(value))
		}
		of := func(got Delivery, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			same(t, got, want)
		}
		of(ReadDelivery(vector.Headers))
		of(ReadDelivery(lists))
		of(ReadDelivery(bytes))
	})
}

func TestVerdictsAreRead(t *testing.T) {
	each(t, "verdicts", func(t *testing.T, vector vector) {
		got, err := ReadVerdict([]byte(vector.Body))
		if err != nil {
			t.Fatal(err)
		}
		same(t, got, filled[Verdict](t, vector.Fields))
	})
}

func TestSignaturesAreChecked(t *testing.T) {
	each(t, "signatures", func(t *testing.T, vector vector) {
		header := http.Header{}
		header.Set("webhook-id", vector.ID)
		header.Set("webhook-timestamp", vector.Timestamp)
		header.Set("webhook-signature", vector.Signature)
		err := Verify(vector.Secrets, header, vector.BodyBase64, time.Unix(vector.Now, 0))
		if (err == nil) != vector.Valid || (err != nil && !errors.Is(err, ErrSignature)) {
			t.Fatal(err)
		}
	})
	for _, secrets := range []string{"", "\n", "whsec_", "whsec_!"} {
		if err := Verify(secrets, http.Header{}, nil, time.Now()); err == nil || errors.Is(err, ErrSignature) {
			t.Fatalf("%q: %v", secrets, err)
		}
	}
}

func TestDurationsAndTimesAreRoundedUp(t *testing.T) {
	spans := []string{Duration(30 * time.Minute), Duration(time.Millisecond), Duration(time.Nanosecond), Duration(0)}
	same(t, spans, []string{"1800000ms", "1ms", "1ms", "0ms"})
	same(t, Duration(1<<63-1), "9223372036855ms")
	// Without its unit this is a time in 1973.
	headers, err := Request{For: "1s", Expire: Duration(1200 * 24 * time.Hour)}.Headers()
	if err != nil || headers["delay-expire"] != "103680000000ms" {
		t.Fatal(headers, err)
	}
	if _, err := (Request{For: "1s", Expire: Duration(-time.Second)}).Headers(); err == nil {
		t.Fatal("a negative expiry")
	}
	if _, err := (Request{For: Duration(-time.Second)}).Headers(); err == nil {
		t.Fatal("a negative delay")
	}
	at := time.Date(2026, 2, 1, 12, 0, 0, 1, time.FixedZone("", 3600))
	same(t, Time(at), "2026-02-01T11:00:00.001Z")
	same(t, Time(at.Add(-1)), "2026-02-01T11:00:00.000Z")
}

func TestAChangedHeaderIsRefused(t *testing.T) {
	if _, err := ReadDelivery(map[string]string{"delayed-attempt": "one"}); err == nil {
		t.Fatal("read")
	}
	if _, err := ReadVerdict([]byte("{}")); err == nil {
		t.Fatal("read")
	}
}

type answer struct {
	status int
	body   string
}

// served is a queue of a server with these answers in turn, and what was called.
func served(t *testing.T, answers ...answer) (*Queue, *[]string) {
	calls := &[]string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		*calls = append(*calls, r.URL.Path+" "+r.Header.Get("authorization")+" "+string(body))
		next := answers[len(*calls)-1]
		w.Header().Set("retry-after", "0")
		w.WriteHeader(next.status)
		io.WriteString(w, next.body)
	}))
	t.Cleanup(server.Close)
	return &Queue{Name: "emails,low", URL: server.URL + "/", Token: "t"}, calls
}

func job(id, body string) string {
	return fmt.Sprintf(`{"id":%q,"queue":"emails","lease":"L1","attempt":1,"due_ms":5,"deadline_ms":9,`+
		`"headers":{"delayed-occurrence":7},%s}`, id, body)
}

const done = `{"results":[{"id":"a","action":"finish","verdict":"finished","due_ms":null}]}`

func TestPopAndAcknowledgements(t *testing.T) {
	touched := answer{200, `{"results":[{"id":"a","action":"x","verdict":"touched","deadline_ms":12}]}`}
	queue, calls := served(t,
		answer{200, `{"jobs":[` + job("a", `"body":"ü"`) + `,` + job("b", `"body_base64":"AP8="`) + `]}`},
		answer{200, strings.Replace(done, "]", `,{"id":"b","action":"finish","verdict":"stale"}]`, 1)},
		touched, touched, touched)
	ctx := context.Background()
	jobs, err := queue.Pop(ctx, 2, Duration(30*time.Second), "1m")
	if err != nil || len(jobs) != 2 {
		t.Fatal(jobs, err)
	}
	one, other := jobs[0], jobs[1]
	same(t, []any{one.ID, string(one.Body), other.Body}, []any{"a", "ü", []byte{0, 255}})
	same(t, []int64{one.Attempt, one.DueMS, one.DeadlineMS}, []int64{1, 5, 9})
	if delivery, err := ReadDelivery(one.Headers); err != nil || delivery.Occurrence != 7 {
		t.Fatal(delivery, err)
	}
	results, err := queue.Finish(ctx, one, other)
	if err != nil {
		t.Fatal(err)
	}
	same(t, []string{results[0].Verdict, results[1].Verdict}, []string{"finished", "stale"})
	if result, err := queue.Fail(ctx, one, "no", "5"); err != nil || *result.DeadlineMS != 12 {
		t.Fatal(result, err)
	}
	if _, err := queue.Release(ctx, one, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := queue.Touch(ctx, one, "2m"); err != nil {
		t.Fatal(err)
	}
	same(t, *calls, []string{
		`/v1/queues/emails,low/pop Bearer t {"max":2,"ttr":"1m","wait":"30000ms"}`,
		`/v1/leases Bearer t {"finish":[{"id":"a","lease":"L1"},{"id":"b","lease":"L1"}]}`,
		`/v1/leases Bearer t {"fail":[{"error":"no","for":"5","id":"a","lease":"L1"}]}`,
		`/v1/leases Bearer t {"release":[{"id":"a","lease":"L1"}]}`,
		`/v1/leases Bearer t {"touch":[{"id":"a","lease":"L1","ttr":"2m"}]}`,
	})
}

func TestAProblemSaysWhatDwellSays(t *testing.T) {
	queue, _ := served(t, answer{404, `{"code":"unknown_queue","detail":"declare it"}`}, answer{200, "<html>"})
	_, err := queue.Pop(context.Background(), 1, "", "")
	var problem *Problem
	if !errors.As(err, &problem) || problem.Code != "unknown_queue" || problem.Status != 404 {
		t.Fatal(err)
	}
	same(t, err.Error(), "dwell: answered 404 unknown_queue: declare it")
	if _, err := queue.Pop(context.Background(), 1, "", ""); !errors.As(err, &problem) || problem.Status != 200 {
		t.Fatal(err)
	}
}

func TestTheLoopFinishesFailsAndWaitsForDwell(t *testing.T) {
	queue, calls := served(t,
		answer{200, `{"jobs":[` + job("a", `"body":""`) + `]}`},
		answer{503, `{"code":"redis","detail":"away"}`},
		answer{200, done},
		answer{200, `{"jobs":[]}`},
		answer{200, `{"jobs":[` + job("b", `"body":""`) + `]}`},
		answer{200, done},
		answer{200, `{"jobs":[` + job("c", `"body":""`) + `]}`},
		answer{200, done})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var seen []string
	err := queue.Work(ctx, func(_ context.Context, job Job) error {
		seen = append(seen, job.ID)
		if job.ID == "b" {
			return errors.New("no stamp")
		}
		if job.ID == "c" {
			stop()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	same(t, seen, []string{"a", "b", "c"})
	var words []string
	for _, call := range *calls {
		if _, body, ok := strings.Cut(call, "/v1/leases Bearer t "); ok {
			words = append(words, body)
		}
	}
	finish := func(id string) string { return `{"finish":[{"id":"` + id + `","lease":"L1"}]}` }
	same(t, words, []string{
		finish("a"), finish("a"), `{"fail":[{"error":"no stamp","id":"b","lease":"L1"}]}`, finish("c"),
	})
}

func TestWhatIsNotDwellsIsAProblem(t *testing.T) {
	for _, body := range []string{"{}", "null", "[]", `{"ok":true}`, `"no"`, `{"jobs":null}`, `{"results":null}`} {
		queue, _ := served(t, answer{200, body}, answer{200, body})
		_, popped := queue.Pop(context.Background(), 1, "", "")
		_, finished := queue.Finish(context.Background(), Job{ID: "a", Lease: "L1"})
		for _, err := range []error{popped, finished} {
			var problem *Problem
			if !errors.As(err, &problem) || problem.Status != 200 || problem.Detail != notDwell {
				t.Fatalf("%s: %v", body, err)
			}
		}
	}
}

func TestTheLoopRepeatsWhatAProxyAnswers(t *testing.T) {
	queue, calls := served(t,
		answer{502, "null"}, answer{502, "Bad Gateway"}, answer{502, "[]"}, answer{502, `{"status":200,"detail":"away"}`},
		answer{200, `{"jobs":[` + job("a", `"body":""`) + `]}`}, answer{200, done})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	if err := queue.Work(ctx, func(context.Context, Job) error { stop(); return nil }); err != nil {
		t.Fatal(err)
	}
	same(t, len(*calls), 6)
}

func TestAStoppedHandlerReleasesItsJob(t *testing.T) {
	queue, calls := served(t, answer{200, `{"jobs":[` + job("a", `"body":""`) + `]}`}, answer{200, done})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	err := queue.Work(ctx, func(ctx context.Context, _ Job) error {
		stop()
		return fmt.Errorf("send: %w", ctx.Err())
	})
	if err != nil {
		t.Fatal(err)
	}
	same(t, (*calls)[1], `/v1/leases Bearer t {"release":[{"id":"a","lease":"L1"}]}`)
}

func TestAnErrorIsCutBetweenCharacters(t *testing.T) {
	queue, calls := served(t, answer{200, `{"jobs":[` + job("a", `"body":""`) + `]}`}, answer{200, done})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	long := strings.Repeat("a", 999)
	err := queue.Work(ctx, func(context.Context, Job) error {
		stop()
		return errors.New(long + "üb")
	})
	if err != nil {
		t.Fatal(err)
	}
	same(t, (*calls)[1], `/v1/leases Bearer t {"fail":[{"error":"`+long+`","id":"a","lease":"L1"}]}`)
}

func TestMistakesOfTheCallerEndTheLoop(t *testing.T) {
	for _, queue := range []*Queue{
		{URL: "127.0.0.1:7464"}, {URL: "localhost:7464"}, {URL: "dwell"}, {URL: "ftp://dwell"}, {URL: "http://"},
		{Token: "a\nb"},
	} {
		var problem *Problem
		err := queue.Work(context.Background(), nil)
		if !errors.As(err, &problem) || problem.Status != 0 {
			t.Fatalf("%q: %v", queue.URL, err)
		}
		if queue.Token == "" && !strings.Contains(err.Error(), "write http://127.0.0.1:7464") {
			t.Fatal(err)
		}
	}
	queue, calls := served(t, answer{200, `{"jobs":[]}`})
	queue.Token = " t\n"
	if _, err := queue.Pop(context.Background(), 1, "", ""); err != nil {
		t.Fatal(err)
	}
	same(t, (*calls)[0], `/v1/queues/emails,low/pop Bearer t {"max":1}`)
}

func TestTheLoopEndsWithWhatIsRefusedForGood(t *testing.T) {
	queue, _ := served(t, answer{403, `{"code":"forbidden","detail":"the token may not"}`})
	var problem *Problem
	if err := queue.Work(context.Background(), nil); !errors.As(err, &problem) || problem.Status != 403 {
		t.Fatal(err)
	}
}

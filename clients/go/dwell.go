// Package dwell has requests, deliveries, webhooks and queues of Dwell: one file, the standard library alone.
//
// A request to Dwell is a message with delay-* headers: [Request.Headers] builds them. What Dwell publishes has
// delayed-* headers: [ReadDelivery] reads them. [Verify] checks the signature of a webhook. [Queue] fetches jobs over
// HTTP. Every name and form is that of docs/reference/headers.md and docs/reference/queues.md.
package dwell

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// ---- Requests ----

// Request is what a message to Dwell asks for. Each field is the header of its name: MaxLate is delay-max-late. Empty
// fields are left out.
//
// Exactly one of For, Until and Schedule says when, Target or Queue where. Durations are text (1h30m, PT15M), or of
// [Duration]; times are RFC 3339, or of [Time]. An Action (cancel, reschedule, fire, finish, fail) is for the job ID; a
// finish or fail should have DueMS and Attempt of its delivery. A bare number of Expire from 10^11 on is a time.
type Request struct {
	Action, ID, For, Until, TimeZone, Spread                 string
	Schedule, Start, End, CatchUp, Overlap                   string
	Target, Broker, Queue                                    string
	TTR, Confirm, Late, MaxLate, Expire, OnConflict, MaxWait string
	ReplyTo                                                  string
	Exchange                                                 *string  // of RabbitMQ; empty text is the default exchange
	Retry                                                    []string // waits; empty and not nil: a single attempt
	Count, DueMS, Attempt                                    int64
}

// Duration is a duration as text: milliseconds, rounded up, so that no delay ends early. The unit is written, since a
// long expiry without one would be a time.
func Duration(d time.Duration) string {
	ms := d.Milliseconds()
	if d%time.Millisecond > 0 {
		ms++
	}
	return strconv.FormatInt(ms, 10) + "ms"
}

// Time is a time as text: RFC 3339 in UTC, rounded up to milliseconds.
func Time(t time.Time) string {
	return t.Add(time.Millisecond - 1).Truncate(time.Millisecond).UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// Headers are the headers of the request. An error says why Dwell would reject it, or accept it only by the settings
// of an ingest. For missing_delay: immediate write For "0", for id_from: key the key as the ID; leave out of an action
// what it does not use.
func (r Request) Headers() (map[string]string, error) {
	headers := map[string]string{}
	retry := strings.Join(r.Retry, ",")
	if r.Retry != nil && len(r.Retry) == 0 {
		retry = "none"
	}
	fields := [][2]string{
		{"delay-action", r.Action}, {"delay-id", r.ID}, {"delay-for", r.For}, {"delay-until", r.Until},
		{"delay-time-zone", r.TimeZone}, {"delay-spread", r.Spread}, {"delay-schedule", r.Schedule},
		{"delay-start", r.Start}, {"delay-end", r.End}, {"delay-catch-up", r.CatchUp}, {"delay-overlap", r.Overlap},
		{"delay-target", r.Target}, {"delay-broker", r.Broker}, {"delay-queue", r.Queue}, {"delay-ttr", r.TTR},
		{"delay-confirm", r.Confirm}, {"delay-late", r.Late}, {"delay-max-late", r.MaxLate},
		{"delay-expire", r.Expire}, {"delay-retry", retry}, {"delay-on-conflict", r.OnConflict},
		{"delay-max-wait", r.MaxWait}, {"delay-reply-to", r.ReplyTo},
	}
	for _, field := range fields {
		if field[1] != "" {
			headers[field[0]] = field[1]
		}
	}
	numbers := map[string]int64{"delay-count": r.Count, "delayed-due": r.DueMS, "delayed-attempt": r.Attempt}
	for name, number := range numbers {
		if number != 0 {
			headers[name] = strconv.FormatInt(number, 10)
		}
	}
	if r.Exchange != nil {
		headers["delay-exchange"] = *r.Exchange
	}
	for name, value := range headers {
		if strings.ContainsFunc(value, unicode.IsControl) {
			return nil, fmt.Errorf("dwell: %s has a control character: leave it out", name)
		}
		if strings.HasPrefix(value, "-") && strings.Contains(negative, " "+name+" ") {
			return nil, fmt.Errorf("dwell: %s is negative: write 0 for now", name)
		}
	}
	return headers, check(headers)
}

// negative has the headers that have no negative value.
const negative = " delay-for delay-ttr delay-count delay-spread delay-max-late delay-max-wait delay-expire delay-retry "

// ofAction has the headers of each action, without their prefix, besides action, id and reply-to.
var ofAction = map[string]string{
	"schedule": "for until time-zone schedule spread queue ttr confirm retry late max-late expire on-conflict max-wait",
	"cancel":   "", "reschedule": "for until time-zone", "fire": "", "finish": "due attempt", "fail": "due attempt",
}

// check refuses what cannot stand together.
func check(headers map[string]string) error {
	has := func(name string) bool { _, ok := headers[name]; return ok }
	action := headers["delay-action"]
	if action == "" {
		action = "schedule"
	}
	allowed, ok := ofAction[action]
	if !ok {
		return fmt.Errorf("dwell: %q is no action; those are schedule, cancel, reschedule, fire, finish, fail", action)
	}
	if action == "schedule" && has("delay-schedule") {
		allowed += " start end count catch-up overlap"
	}
	if action == "schedule" && !has("delay-queue") {
		allowed += " target exchange broker"
	}
	times := 0
	for name := range headers {
		bare := strings.TrimPrefix(strings.TrimPrefix(name, "delay-"), "delayed-")
		if !strings.Contains(" action id reply-to "+allowed+" ", " "+bare+" ") {
			return fmt.Errorf("dwell: %s is not for this request: leave it out", name)
		}
		if bare == "for" || bare == "until" || bare == "schedule" {
			times++
		}
	}
	switch {
	case len(headers["delay-id"]) > 256:
		return errors.New("dwell: an ID has 1 to 256 bytes of UTF-8: choose another one")
	case times != 1 && (action == "schedule" || action == "reschedule"):
		return fmt.Errorf("dwell: a request has one of For, Until and Schedule, and this one has %d", times)
	case has("delay-schedule") && (has("delay-max-wait") || headers["delay-on-conflict"] == "debounce"):
		return errors.New("dwell: a recurring schedule does not debounce: leave MaxWait and OnConflict debounce out")
	case has("delay-time-zone") && !has("delay-until") && !has("delay-expire") && !has("delay-schedule"):
		return errors.New("dwell: TimeZone is for Until, Expire or a Schedule: leave it out")
	case (headers["delay-on-conflict"] == "debounce") != has("delay-max-wait"):
		return errors.New("dwell: OnConflict debounce and MaxWait need each other: send both, or neither")
	case !has("delay-id") && (action != "schedule" || has("delay-schedule") || has("delay-max-wait")):
		return errors.New("dwell: this request needs an ID, by which Dwell finds the job")
	}
	return nil
}

// ---- What Dwell publishes ----

// Delivery is what the delayed-* headers say; a field is zero where its header is missing.
type Delivery struct {
	ID                    string // over HTTP percent-encoded beyond ASCII, as it came
	Attempt               int64  // from 1
	DueMS                 int64  // epoch ms, the same over the retries
	Round                 int64  // how often the message came back as a new request
	Schedule              string // of an occurrence: the id of its schedule
	Occurrence, NextMS    int64  // its number, from 1; the nominal time of the next one, epoch ms
	DeadReason, LastError string // of a dead letter
	Error, ErrorDetail    string // of a rejected request: its code, and what was wrong
}

// ReadDelivery reads the headers of a delivery, a dead letter or a rejected request: http.Header and nats.Header,
// amqp.Table, or a map of text or bytes. An error: a header holds what Dwell does not set.
func ReadDelivery[V any](headers map[string]V) (d Delivery, err error) {
	texts := map[string]string{}
	for name, value := range headers {
		switch value := any(value).(type) {
		case []string:
			texts[strings.ToLower(name)] = strings.Join(value, ",")
		case []byte:
			texts[strings.ToLower(name)] = string(value)
		case float64: // as JSON is read
			texts[strings.ToLower(name)] = strconv.FormatFloat(value, 'f', -1, 64)
		default:
			texts[strings.ToLower(name)] = fmt.Sprint(value)
		}
	}
	number := func(name string) (n int64) {
		if text, ok := texts[name]; ok && err == nil {
			if n, err = strconv.ParseInt(text, 10, 64); err != nil || n < 0 {
				err = fmt.Errorf("dwell: %s is %q, and Dwell sets a number: was the header changed?", name, text)
			}
		}
		return n
	}
	d = Delivery{
		texts["delayed-id"], number("delayed-attempt"), number("delayed-due"), number("delayed-round"),
		texts["delayed-schedule"], number("delayed-occurrence"), number("delayed-next"),
		texts["delayed-dead-reason"], texts["delayed-last-error"],
		texts["delayed-error"], texts["delayed-error-detail"],
	}
	return d, err
}

// Verdict is the answer to a request, by ReplyTo or over HTTP.
type Verdict struct {
	ID, Action string
	Verdict    string // added, cancelled, not_found, …: docs/reference/http.md
	DueMS      *int64 `json:"due_ms"`
}

// ReadVerdict reads the body of a verdict.
func ReadVerdict(body []byte) (Verdict, error) {
	var v Verdict
	if err := json.Unmarshal(body, &v); err != nil || v.ID == "" || v.Action == "" || v.Verdict == "" {
		return v, errors.New(`dwell: no verdict: its body is JSON with "id", "action" and "verdict"`)
	}
	return v, nil
}

// ---- Webhooks ----

// ErrSignature is a webhook that is not to be trusted.
var ErrSignature = errors.New("dwell: the webhook is not to be trusted")

// Tolerance is how far the time of a webhook may be off.
const Tolerance = 5 * time.Minute

// Verify checks the signature of a webhook (Standard Webhooks) at the time now. secrets is the text of Dwell's
// secret_file: one or two secrets, in lines. body: the bytes as they came. Another error than [ErrSignature]: the
// secrets are wrong.
func Verify(secrets string, header http.Header, body []byte, now time.Time) error {
	id, sent := header.Get("webhook-id"), header.Get("webhook-timestamp")
	var expected [][]byte
	for _, secret := range strings.Fields(secrets) {
		bare := strings.TrimRight(strings.TrimPrefix(secret, "whsec_"), "=")
		key, err := base64.RawStdEncoding.DecodeString(bare)
		if err != nil || len(key) == 0 {
			return errors.New("dwell: a secret is empty or no base64")
		}
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + sent + "."))
		mac.Write(body)
		expected = append(expected, []byte("v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil))))
	}
	if len(expected) == 0 {
		return errors.New("dwell: no secret: anybody could sign with it")
	}
	seconds, err := strconv.ParseUint(sent, 10, 62)
	if err != nil {
		return fmt.Errorf("%w: webhook-timestamp is missing or no number", ErrSignature)
	}
	if off := now.Sub(time.Unix(int64(seconds), 0)).Abs(); off > Tolerance {
		return fmt.Errorf("%w: webhook-timestamp is %s off: an old request, or a wrong clock", ErrSignature, off)
	}
	for _, one := range expected {
		for _, signature := range strings.Fields(header.Get("webhook-signature")) {
			if hmac.Equal(one, []byte(signature)) {
				return nil
			}
		}
	}
	return fmt.Errorf("%w: no signature is by one of the secrets", ErrSignature)
}

// ---- Queues ----

// Problem is a call that Dwell refused, or that cannot be sent as it is.
type Problem struct {
	Status     int           // of HTTP; 0: not sent
	Code       string        // the word for it, if any
	Detail     string        // for people
	RetryAfter time.Duration // when to ask again, if Dwell said so
}

func (p *Problem) Error() string {
	if p.Status == 0 {
		return "dwell: " + p.Detail
	}
	return strings.TrimSpace(fmt.Sprintf("dwell: answered %d %s", p.Status, p.Code)) + ": " + p.Detail
}

// Job is a job that this consumer has until DeadlineMS, by its lease.
type Job struct {
	ID, Queue, Lease string
	Attempt          int64          // counts hand-outs, from 1
	DueMS            int64          `json:"due_ms"`
	DeadlineMS       int64          `json:"deadline_ms"`
	Headers          map[string]any // as JSON holds them; ReadDelivery reads those of a schedule
	Body             []byte         `json:"body_base64"`
}

// Result is the answer to an acknowledgement. Verdict is finished, failed, dead, released or touched; or nothing
// changed: stale, fired, not_found.
type Result struct {
	ID, Action, Verdict string
	DueMS               *int64 `json:"due_ms"`
	DeadlineMS          *int64 `json:"deadline_ms"`
}

// Queue fetches jobs of a queue, or of several ("high,low"), over HTTP. Durations are text (30s), or of [Duration]; an
// empty one is the default. Calls return a *[Problem] where Dwell refuses. Goroutines may share it.
type Queue struct {
	Name  string
	URL   string       // of Dwell; empty: http://127.0.0.1:7464
	Token string       // if Dwell asks for one
	HTTP  *http.Client // nil: http.DefaultClient
}

// Pop answers due jobs, at most max. wait (to 60s) holds the call until one is due; after it the list is empty.
func (q *Queue) Pop(ctx context.Context, max int, wait, ttr string) ([]Job, error) {
	var answer struct {
		Jobs []struct {
			Job
			Text *string `json:"body"`
		}
	}
	names := strings.ReplaceAll(url.PathEscape(q.Name), "%2C", ",")
	asked := words(map[string]any{"max": max}, "wait", wait, "ttr", ttr)
	err := q.call(ctx, "/v1/queues/"+names+"/pop", asked, &answer)
	if err == nil && answer.Jobs == nil {
		err = &Problem{Status: http.StatusOK, Detail: notDwell}
	}
	jobs := make([]Job, 0, len(answer.Jobs))
	for _, read := range answer.Jobs {
		if read.Text != nil {
			read.Body = []byte(*read.Text)
		}
		jobs = append(jobs, read.Job)
	}
	return jobs, err
}

// Finish says that these jobs are done, at most 1000.
func (q *Queue) Finish(ctx context.Context, jobs ...Job) ([]Result, error) {
	return q.leases(ctx, "finish", jobs)
}

// Fail says that this attempt failed: the next wait of the retry array begins, or after instead; at its end the job is
// dead. why becomes its last error.
func (q *Queue) Fail(ctx context.Context, job Job, why, after string) (Result, error) {
	return first(q.leases(ctx, "fail", []Job{job}, "error", why, "for", after))
}

// Release gives the job back, for others at once or for all after a time; its retries are not used up.
func (q *Queue) Release(ctx context.Context, job Job, after string) (Result, error) {
	return first(q.leases(ctx, "release", []Job{job}, "for", after))
}

// Touch prolongs the lease: to ttr from now, by default as long as it was given.
func (q *Queue) Touch(ctx context.Context, job Job, ttr string) (Result, error) {
	return first(q.leases(ctx, "touch", []Job{job}, "ttr", ttr))
}

// Work fetches one job after the other until ctx is done, and calls handle with each.
//
// The job is finished when handle returns nil, and failed, with the text of the error, when not. While Dwell is away
// the loop waits and tries again; what Dwell refuses for good is returned. A job may come twice: make handle
// repeatable. For more jobs at a time run it in more goroutines.
//
// A job whose handle returns the error of ctx, once ctx is done, is released for others: that is no failure of the job.
// An acknowledgement after the end of ctx is sent once; where it gets no answer, the job comes again.
func (q *Queue) Work(ctx context.Context, handle func(context.Context, Job) error) error {
	for ctx.Err() == nil {
		var jobs []Job
		err := untilAnswered(ctx, func() (err error) {
			jobs, err = q.Pop(ctx, 1, "30s", "")
			return err
		})
		for _, job := range jobs {
			failure := handle(ctx, job)
			// Also where ctx is done meanwhile: the work is.
			settled := context.WithoutCancel(ctx)
			err = untilAnswered(ctx, func() (err error) {
				if failure == nil {
					_, err = q.Finish(settled, job)
				} else if ctx.Err() != nil && errors.Is(failure, ctx.Err()) {
					_, err = q.Release(settled, job, "")
				} else {
					text := failure.Error()
					_, err = q.Fail(settled, job, strings.ToValidUTF8(text[:min(len(text), 1000)], ""), "")
				}
				return err
			})
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// untilAnswered repeats a call while Dwell is away and ctx is not done. Acknowledgements may be sent again.
func untilAnswered(ctx context.Context, call func() error) error {
	for {
		err := call()
		pause := time.Second
		var problem *Problem
		if errors.As(err, &problem) {
			if problem.Status < 500 && problem.Status != 408 && problem.Status != 429 {
				return err
			}
			pause = problem.RetryAfter
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

func first(results []Result, err error) (Result, error) {
	if err == nil && len(results) == 0 {
		err = errors.New("dwell: an answer without a result")
	}
	if err != nil {
		return Result{}, err
	}
	return results[0], nil
}

// words adds the options that are set: pairs of name and text.
func words(to map[string]any, options ...string) map[string]any {
	for i := 0; i < len(options); i += 2 {
		if options[i+1] != "" {
			to[options[i]] = options[i+1]
		}
	}
	return to
}

func (q *Queue) leases(ctx context.Context, action string, jobs []Job, options ...string) ([]Result, error) {
	asked := make([]any, 0, len(jobs))
	for _, job := range jobs {
		asked = append(asked, words(map[string]any{"id": job.ID, "lease": job.Lease}, options...))
	}
	var answer struct{ Results []Result }
	err := q.call(ctx, "/v1/leases", map[string]any{action: asked}, &answer)
	if err == nil && answer.Results == nil {
		err = &Problem{Status: http.StatusOK, Detail: notDwell}
	}
	return answer.Results, err
}

const notDwell = "the answer is not Dwell's: is the URL right?"

func (q *Queue) call(ctx context.Context, path string, asked, answer any) error {
	body, err := json.Marshal(asked)
	if err != nil {
		return err
	}
	// Longer than the longest wait, and than Dwell takes for an answer.
	ctx, cancel := context.WithTimeout(ctx, 95*time.Second)
	defer cancel()
	base, client := strings.TrimRight(q.URL, "/"), q.HTTP
	if base == "" {
		base = "http://127.0.0.1:7464"
	}
	if client == nil {
		client = http.DefaultClient
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, base+path, bytes.NewReader(body))
	if err != nil {
		return &Problem{Detail: err.Error() + ": write http://127.0.0.1:7464"}
	}
	if (request.URL.Scheme != "http" && request.URL.Scheme != "https") || request.URL.Host == "" {
		return &Problem{Detail: request.URL.Redacted() + " is no URL of Dwell: write http://127.0.0.1:7464"}
	}
	request.Header.Set("content-type", "application/json")
	// Of a file, a token has a line end.
	token := strings.TrimSpace(q.Token)
	if strings.ContainsFunc(token, unicode.IsControl) {
		return &Problem{Detail: "the token has a control character: give that of Dwell's settings"}
	}
	if token != "" {
		request.Header.Set("authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("dwell: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("dwell: %w", err)
	}
	problem := &Problem{Status: response.StatusCode, RetryAfter: time.Second, Detail: notDwell}
	if response.StatusCode == http.StatusOK {
		if err = json.Unmarshal(text, answer); err == nil {
			return nil
		}
		return problem
	}
	if seconds, err := strconv.ParseUint(response.Header.Get("retry-after"), 10, 32); err == nil {
		problem.RetryAfter = time.Duration(seconds) * time.Second
	}
	var read struct{ Code, Detail string }
	if err = json.Unmarshal(text, &read); err == nil && read.Detail != "" {
		problem.Code, problem.Detail = read.Code, read.Detail
	}
	return problem
}

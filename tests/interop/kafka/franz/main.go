// The four verbs of tests/interop/kafka/programs/protocol.py through franz-go.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sort"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Arguments of every verb; a verb reads those it needs.
type arguments struct {
	bootstrap, topic, group, compression string
	idempotent                           bool
	count, partitions                    int
	fromMs                               int64
}

// A header is a JSON pair of a name and base64 or null.
type header struct {
	name  string
	value []byte
}

func (h header) MarshalJSON() ([]byte, error) { return json.Marshal([]any{h.name, h.value}) }

func (h *header) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&h.name, &h.value})
}

// A message is one line; encoding/json makes base64 of []byte and null of nil.
type message struct {
	Partition *int32   `json:"partition"`
	Offset    *int64   `json:"offset"`
	Timestamp *int64   `json:"timestamp"`
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []header `json:"headers"`
}

var stdout = struct {
	sync.Mutex
	*json.Encoder
}{Encoder: json.NewEncoder(os.Stdout)}

func say(row any) {
	stdout.Lock()
	defer stdout.Unlock()
	must(stdout.Encode(row))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// outcome is Kafka's error code, 0 for success.
func outcome(err error) int16 {
	var broker *kerr.Error
	if errors.As(err, &broker) {
		return broker.Code
	}
	must(err)
	return 0
}

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func dial(a arguments, options ...kgo.Opt) *kgo.Client {
	options = append(options, kgo.SeedBrokers(a.bootstrap), kgo.AllowAutoTopicCreation())
	client, err := kgo.NewClient(options...)
	must(err)
	return client
}

func produce(a arguments) {
	options := []kgo.Opt{
		kgo.ProducerBatchCompression(codecs[a.compression]),
		kgo.ProducerLinger(20 * time.Millisecond),
		kgo.DefaultProduceTopic(a.topic),
		kgo.RecordPartitioner(chosen{}),
	}
	if !a.idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client := dial(a, options...)
	defer client.Close()
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var m message
		must(json.Unmarshal(lines.Bytes(), &m))
		client.Produce(context.Background(), record(m), func(r *kgo.Record, err error) {
			must(err)
			say(map[string]int64{"partition": int64(r.Partition), "offset": r.Offset})
		})
	}
	must(lines.Err())
	must(client.Flush(context.Background()))
}

func record(m message) *kgo.Record {
	r := &kgo.Record{Key: m.Key, Value: m.Value, Partition: -1}
	if m.Partition != nil {
		r.Partition = *m.Partition
	}
	if m.Timestamp != nil {
		r.Timestamp = time.UnixMilli(*m.Timestamp)
	}
	for _, h := range m.Headers {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.name, Value: h.value})
	}
	return r
}

// chosen keeps the partition that a record names and spreads the others by key.
type chosen struct{}

func (chosen) ForTopic(topic string) kgo.TopicPartitioner {
	return chosenTopic{kgo.StickyKeyPartitioner(nil).ForTopic(topic)}
}

type chosenTopic struct{ kgo.TopicPartitioner }

func (t chosenTopic) Partition(r *kgo.Record, n int) int {
	if r.Partition >= 0 {
		return int(r.Partition)
	}
	return t.TopicPartitioner.Partition(r, n)
}

func show(r *kgo.Record) {
	partition, offset, timestamp := r.Partition, r.Offset, r.Timestamp.UnixMilli()
	headers := []header{}
	for _, h := range r.Headers {
		headers = append(headers, header{h.Key, h.Value})
	}
	say(message{&partition, &offset, &timestamp, r.Key, r.Value, headers})
}

func consume(a arguments) {
	starts := map[int32]kgo.Offset{}
	if a.fromMs >= 0 {
		starts[0] = kgo.NewOffset().AfterMilli(a.fromMs)
	} else {
		for n := range a.partitions {
			starts[int32(n)] = kgo.NewOffset().AtStart()
		}
	}
	client := dial(a, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{a.topic: starts}))
	defer client.Close()
	for left := a.count; left > 0; {
		fetches := client.PollRecords(context.Background(), left)
		must(fetches.Err())
		fetches.EachRecord(show)
		left -= fetches.NumRecords()
	}
}

func member(a arguments) {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	held := map[int32]bool{}
	taken := func(_ context.Context, _ *kgo.Client, change map[string][]int32) {
		for _, n := range change[a.topic] {
			held[n] = true
		}
		say(map[string][]int32{"assigned": sorted(held)})
	}
	given := func(_ context.Context, _ *kgo.Client, change map[string][]int32) {
		for _, n := range change[a.topic] {
			delete(held, n)
		}
		say(map[string][]int32{"assigned": sorted(held)})
	}
	client := dial(a,
		kgo.ConsumerGroup(a.group), kgo.ConsumeTopics(a.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(500*time.Millisecond),
		kgo.OnPartitionsAssigned(taken), kgo.OnPartitionsRevoked(given),
		kgo.OnPartitionsLost(given))
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		if ctx.Err() == nil {
			must(fetches.Err())
		}
		fetches.EachRecord(show)
	}
	client.Close()
}

func sorted(held map[int32]bool) []int32 {
	found := []int32{}
	for n := range held {
		found = append(found, n)
	}
	sort.Slice(found, func(i, j int) bool { return found[i] < found[j] })
	return found
}

func main() {
	if len(os.Args) < 2 {
		log.Fatal("usage: franz produce|consume|member|admin --bootstrap B --topic T ...")
	}
	var a arguments
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	flags.StringVar(&a.bootstrap, "bootstrap", "", "")
	flags.StringVar(&a.topic, "topic", "", "")
	flags.StringVar(&a.group, "group", "", "")
	flags.StringVar(&a.compression, "compression", "none", "")
	flags.BoolVar(&a.idempotent, "idempotent", false, "")
	flags.IntVar(&a.count, "count", 0, "")
	flags.IntVar(&a.partitions, "partitions", 1, "")
	flags.Int64Var(&a.fromMs, "from-ms", -1, "")
	must(flags.Parse(os.Args[2:]))
	verbs := map[string]func(arguments){
		"produce": produce, "consume": consume, "member": member, "admin": admin,
	}
	verb, known := verbs[os.Args[1]]
	if !known {
		log.Fatal(fmt.Errorf("unknown verb %q", os.Args[1]))
	}
	verb(a)
}

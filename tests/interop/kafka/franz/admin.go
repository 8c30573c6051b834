package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// As in programs/protocol.py.
const (
	partitionsAtFirst = 2
	partitionsLater   = 4
	retentionMs       = "86400000"
	messageBytes      = "2000000"
	records           = 10
	deleteBefore      = 4
	committed         = 7
	unknownTopic      = 3
)

// settled returns what look sees once it is what is expected, or 10 s are over.
func settled[T any](look func() T, expected any) T {
	var seen T
	for range 200 {
		seen = look()
		if fmt.Sprint(seen) == fmt.Sprint(expected) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	return seen
}

func admin(a arguments) {
	client := dial(a, kgo.RecordPartitioner(chosen{}))
	defer client.Close()
	seen := map[string]any{}
	topicSteps(a, kadm.NewClient(client), seen)
	groupSteps(a, kadm.NewClient(client), seen)
	removalSteps(a, client, seen)
	say(seen)
}

func topicSteps(a arguments, admin *kadm.Client, seen map[string]any) {
	ctx := context.Background()
	retention, one := retentionMs, "1"
	create := func(topic string, configs map[string]*string) int16 {
		_, err := admin.CreateTopic(ctx, partitionsAtFirst, 1, configs, topic)
		return outcome(err)
	}
	count := func() int {
		found, err := admin.ListTopics(ctx, a.topic)
		must(err)
		return len(found[a.topic].Partitions)
	}
	configs := func() []string {
		found, err := admin.DescribeTopicConfigs(ctx, a.topic)
		must(err)
		values := map[string]string{}
		for _, config := range found[0].Configs {
			values[config.Key] = config.MaybeValue()
		}
		return []string{values["retention.ms"], values["max.message.bytes"]}
	}
	seen["created"] = create(a.topic, map[string]*string{"retention.ms": &retention})
	seen["created again"] = create(a.topic, nil)
	seen["bad config"] = create(a.topic+"-x", map[string]*string{"no.such": &one})
	seen["partitions"] = settled(count, partitionsAtFirst)
	bytes := messageBytes
	change := kadm.AlterConfig{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &bytes}
	_, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{change}, a.topic)
	must(err)
	seen["configs"] = settled(configs, []string{retentionMs, messageBytes})
	_, err = admin.UpdatePartitions(ctx, partitionsLater, a.topic)
	must(err)
	seen["more partitions"] = settled(count, partitionsLater)
}

func groupSteps(a arguments, admin *kadm.Client, seen map[string]any) {
	ctx := context.Background()
	listed := func() bool {
		found, err := admin.ListGroups(ctx)
		must(err)
		_, known := found[a.group]
		return known
	}
	offsets := kadm.Offsets{}
	offsets.AddOffset(a.topic, 0, committed, -1)
	must(admin.CommitAllOffsets(ctx, a.group, offsets))
	fetched, err := admin.FetchOffsets(ctx, a.group)
	must(err)
	place, _ := fetched.Lookup(a.topic, 0)
	described, err := admin.DescribeGroups(ctx, a.group)
	must(err)
	seen["committed"] = place.At
	seen["group state"] = strings.ToLower(described[a.group].State)
	seen["group listed"] = listed()
	deleted, err := admin.DeleteGroup(ctx, a.group)
	must(err)
	seen["group deleted"] = outcome(deleted.Err)
	seen["group listed after"] = listed()
}

func removalSteps(a arguments, client *kgo.Client, seen map[string]any) {
	ctx := context.Background()
	admin := kadm.NewClient(client)
	for n := range records {
		r := &kgo.Record{Topic: a.topic, Value: fmt.Append(nil, n)}
		must(client.ProduceSync(ctx, r).FirstErr())
	}
	cut := kadm.Offsets{}
	cut.AddOffset(a.topic, 0, deleteBefore, -1)
	deleted, err := admin.DeleteRecords(ctx, cut)
	must(err)
	place, _ := deleted.Lookup(a.topic, 0)
	first, err := admin.ListStartOffsets(ctx, a.topic)
	must(err)
	end, err := admin.ListEndOffsets(ctx, a.topic)
	must(err)
	start, _ := first.Lookup(a.topic, 0)
	last, _ := end.Lookup(a.topic, 0)
	seen["low watermark"] = place.LowWatermark
	seen["bounds"] = []int64{start.Offset, last.Offset}
	remove := func() int16 {
		_, err := admin.DeleteTopic(ctx, a.topic)
		return outcome(err)
	}
	seen["deleted"] = remove()
	seen["deleted again"] = settled(remove, unknownTopic)
}

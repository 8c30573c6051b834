// Command amqp speaks through amqp091-go and prints what it sees, a line for each step.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const within = 60 * time.Second

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func say(name string, value any) { fmt.Printf("> %s %v\n", name, value) }

func channelOf(connection *amqp.Connection) *amqp.Channel {
	channel, err := connection.Channel()
	check(err)
	return channel
}

func main() {
	port, stem := os.Args[1], os.Args[2]
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	connection, err := amqp.Dial("amqp://guest:guest@127.0.0.1:" + port + "/")
	check(err)
	queue := stem + "-q"
	channel := channelOf(connection)
	check(channel.ExchangeDeclare(stem, "topic", true, false, false, false, nil))
	_, err = channel.QueueDeclare(queue, true, false, false, false, nil)
	check(err)
	check(channel.QueueBind(queue, "a.#", stem, false, nil))
	check(channel.Confirm(false))
	returned := channel.NotifyReturn(make(chan amqp.Return, 1))
	publish(ctx, channel, stem, "a.b", false, amqp.Publishing{
		ContentType: "text/plain", CorrelationId: "c1", ReplyTo: "r1", MessageId: "m1",
		Priority: 7, Headers: amqp.Table{"text": "a", "number": int64(5)}, Body: []byte("hello"),
	})
	say("confirmed", 1)
	publish(ctx, channel, stem, "nowhere", true, amqp.Publishing{Body: []byte("lost")})
	lost := <-returned
	say("returned", fmt.Sprintf("%d %s", lost.ReplyCode, lost.ReplyText))

	got, _, err := channel.Get(queue, false)
	check(err)
	say("body", string(got.Body))
	say("headers", fmt.Sprintf("%v,%v", got.Headers["text"], got.Headers["number"]))
	say("properties", fmt.Sprintf("%s|%s|%s|%s|%d",
		got.ContentType, got.CorrelationId, got.ReplyTo, got.MessageId, got.Priority))
	check(got.Nack(false, true))
	got, _, err = channel.Get(queue, false)
	check(err)
	say("redelivered", got.Redelivered)
	check(got.Ack(false))

	say("reply", reply(ctx, connection, stem))
	say("stream", stream(ctx, connection, stem))
	say("tx", transaction(ctx, connection, queue))
	_, err = channelOf(connection).QueueDeclarePassive("there-is-none", true, false, false, false, nil)
	var fault *amqp.Error
	if errors.As(err, &fault) {
		say("fault", fault.Code)
	}
	_, err = channel.QueueDelete(queue, false, false, false)
	check(err)
	check(channel.ExchangeDelete(stem, false, false))
	check(connection.Close())
}

func publish(
	ctx context.Context, channel *amqp.Channel, exchange, key string, mandatory bool, one amqp.Publishing,
) {
	confirm, err := channel.PublishWithDeferredConfirmWithContext(ctx, exchange, key, mandatory, false, one)
	check(err)
	if acked, err := confirm.WaitContext(ctx); err != nil || !acked {
		check(fmt.Errorf("not confirmed: %w", err))
	}
}

func reply(ctx context.Context, connection *amqp.Connection, stem string) string {
	server := channelOf(connection)
	queue := stem + "-rpc"
	_, err := server.QueueDeclare(queue, false, true, true, false, nil)
	check(err)
	questions, err := server.Consume(queue, "", true, false, false, false, nil)
	check(err)
	go func() {
		for one := range questions {
			check(server.PublishWithContext(ctx, "", one.ReplyTo, false, false,
				amqp.Publishing{CorrelationId: one.CorrelationId, Body: []byte("pong")}))
		}
	}()
	client := channelOf(connection)
	answers, err := client.Consume("amq.rabbitmq.reply-to", "", true, false, false, false, nil)
	check(err)
	check(client.PublishWithContext(ctx, "", queue, false, false, amqp.Publishing{
		ReplyTo: "amq.rabbitmq.reply-to", CorrelationId: "7", Body: []byte("ping")}))
	answer := <-answers
	return string(answer.Body) + " " + answer.CorrelationId
}

func stream(ctx context.Context, connection *amqp.Connection, stem string) string {
	channel := channelOf(connection)
	name := stem + "-stream"
	_, err := channel.QueueDeclare(name, true, false, false, false, amqp.Table{"x-queue-type": "stream"})
	check(err)
	check(channel.Confirm(false))
	for number := range 3 {
		publish(ctx, channel, "", name, false, amqp.Publishing{Body: fmt.Appendf(nil, "s%d", number)})
	}
	check(channel.Qos(2, 0, false))
	messages, err := channel.Consume(name, "", false, false, false, false,
		amqp.Table{"x-stream-offset": "first"})
	check(err)
	var seen []string
	for range 3 {
		one := <-messages
		seen = append(seen, fmt.Sprintf("%v=%s", one.Headers["x-stream-offset"], one.Body))
		check(one.Ack(false))
	}
	_, err = channel.QueueDelete(name, false, false, false)
	check(err)
	return strings.Join(seen, ",")
}

func transaction(ctx context.Context, connection *amqp.Connection, queue string) int {
	channel := channelOf(connection)
	check(channel.Tx())
	check(channel.PublishWithContext(ctx, "", queue, false, false, amqp.Publishing{Body: []byte("not")}))
	check(channel.TxRollback())
	check(channel.PublishWithContext(ctx, "", queue, false, false, amqp.Publishing{Body: []byte("kept")}))
	check(channel.TxCommit())
	found, err := channel.QueueDeclarePassive(queue, true, false, false, false, nil)
	check(err)
	return found.Messages
}

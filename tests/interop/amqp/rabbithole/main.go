// Program that uses rabbit-hole as an operator's tool does; it prints what it has seen as JSON.
//
// Arguments: the URL of the HTTP API, a stem for names.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	rabbithole "github.com/michaelklishin/rabbit-hole/v2"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	api, stem := os.Args[1], os.Args[2]
	client, err := rabbithole.NewClient(api, "guest", "guest")
	check(err)
	seen := map[string]any{}
	vhost := stem + "-vhost"

	overview, err := client.Overview()
	check(err)
	seen["version"] = overview.RabbitMQVersion
	who, err := client.Whoami()
	check(err)
	seen["whoami"] = who.Name
	nodes, err := client.ListNodes()
	check(err)
	seen["running"] = len(nodes) == 1 && nodes[0].IsRunning

	_, err = client.PutVhost(vhost, rabbithole.VhostSettings{Description: "made by a tool"})
	check(err)
	found, err := client.GetVhost(vhost)
	check(err)
	seen["description"] = found.Description

	_, err = client.DeclareExchange(vhost, "events", rabbithole.ExchangeSettings{Type: "topic", Durable: true})
	check(err)
	_, err = client.DeclareQueue(vhost, "a/b", rabbithole.QueueSettings{
		Durable: true, Arguments: map[string]interface{}{"x-max-length": 10},
	})
	check(err)
	response, err := client.DeclareBinding(vhost, rabbithole.BindingInfo{
		Source: "events", Destination: "a/b", DestinationType: "queue", RoutingKey: "a.*",
	})
	check(err)
	seen["location"] = response.Header.Get("Location")
	bindings, err := client.ListQueueBindings(vhost, "a/b")
	check(err)
	keys := []string{}
	for _, one := range bindings {
		keys = append(keys, one.PropertiesKey)
	}
	seen["keys"] = keys
	_, err = client.DeleteBinding(vhost, rabbithole.BindingInfo{
		Source: "events", Destination: "a/b", DestinationType: "queue", PropertiesKey: "a.%2A",
	})
	check(err)
	bindings, err = client.ListQueueBindings(vhost, "a/b")
	check(err)
	seen["left"] = len(bindings)

	_, err = client.PutPolicy(vhost, "cap", rabbithole.Policy{
		Pattern: "^a", ApplyTo: "queues", Priority: 2,
		Definition: rabbithole.PolicyDefinition{"max-length": 5},
	})
	check(err)
	queue, err := client.GetQueue(vhost, "a/b")
	check(err)
	seen["policy"] = queue.Policy
	seen["type"] = queue.Type
	policy, err := client.GetPolicy(vhost, "cap")
	check(err)
	seen["max-length"] = policy.Definition["max-length"]

	page, err := client.PagedListQueuesWithParameters(map[string][]string{"page": {"1"}, "name": {"a/b"}})
	check(err)
	seen["paged"] = page.FilteredCount
	_, err = client.GetQueue(vhost, "none")
	seen["missing"] = err.Error()

	_, err = client.DeleteVhost(vhost)
	check(err)
	_, err = client.GetVhost(vhost)
	seen["deleted"] = err != nil

	check(json.NewEncoder(os.Stdout).Encode(seen))
}

// Logs in with the given settings and sends one record. Prints ok, refused (log-in failed) or denied (no permission).
//
//	probe '{"address": ..., "topic": ..., "mechanism": ..., ...}'
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type told struct {
	Address, Topic, Mechanism, User, Password, Token string
	TLS                                              bool
	CA, Cert, Key                                    string
}

func (t told) tls() (*tls.Config, error) {
	pem, err := os.ReadFile(t.CA)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost"}
	config.RootCAs.AppendCertsFromPEM(pem)
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func (t told) sasl() sasl.Mechanism {
	switch t.Mechanism {
	case "PLAIN":
		return plain.Auth{User: t.User, Pass: t.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: t.User, Pass: t.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: t.User, Pass: t.Password}.AsSha512Mechanism()
	case "OAUTHBEARER":
		return oauth.Auth{Token: t.Token}.AsMechanism()
	}
	return nil
}

// The response to a rejected token is a JSON document, which this client treats as an error of its own.
func refused(t told, err error) bool {
	if errors.Is(err, kerr.SaslAuthenticationFailed) {
		return true
	}
	if t.Mechanism == "OAUTHBEARER" {
		return strings.Contains(err.Error(), "unexpected data in oauth response")
	}
	// The client sends no certificate of an authority that the node does not list, so it is rejected as anonymous.
	closed := strings.Contains(err.Error(), "tls:") || strings.Contains(err.Error(), "broker closed the connection")
	return t.Mechanism == "certificate" && closed
}

func run() (string, error) {
	var t told
	if err := json.Unmarshal([]byte(os.Args[1]), &t); err != nil {
		return "", err
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(t.Address), kgo.RecordDeliveryTimeout(10 * time.Second), kgo.RequestRetries(0),
		kgo.UnknownTopicRetries(0), kgo.RecordRetries(0), kgo.AllowAutoTopicCreation(),
	}
	if t.TLS {
		config, err := t.tls()
		if err != nil {
			return "", err
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	if mechanism := t.sasl(); mechanism != nil {
		options = append(options, kgo.SASL(mechanism))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return "", err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	// The error of an unsent record may lack its cause.
	if err := client.Ping(ctx); err != nil {
		if refused(t, err) {
			return "refused", nil
		}
		return "", err
	}
	err = client.ProduceSync(ctx, &kgo.Record{Topic: t.Topic, Value: []byte("x")}).FirstErr()
	switch {
	case err == nil:
		return "ok", nil
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return "denied", nil
	}
	return "", err
}

func main() {
	outcome, err := run()
	if err != nil {
		fmt.Println(strings.ReplaceAll(err.Error(), "\n", " "))
		os.Exit(1)
	}
	fmt.Println(outcome)
}

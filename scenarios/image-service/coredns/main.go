// CoreDNS with the plugins that the Corefiles of the scenario and of the agent's tests name, and none of the clouds'.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/autopath"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/file"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/metrics"
)

// What comes first is asked first: autopath answers in the place of the zones behind it, as in CoreDNS's own order.
func init() {
	dnsserver.Directives = []string{"bind", "prometheus", "autopath", "hosts", "file"}
}

func main() {
	coremain.Run()
}

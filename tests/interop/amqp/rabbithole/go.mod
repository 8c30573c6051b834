module headgate.test/rabbithole

go 1.22

require github.com/michaelklishin/rabbit-hole/v2 v2.16.0 // indirect
